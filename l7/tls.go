package l7

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/config"
)

// certificates are those of a policy, ready to be used.
type certificates map[config.CertificateFiles]*tls.Certificate

func newCertificates(from []config.Certificate) (certificates, error) {
	all := certificates{}
	for _, c := range from {
		pair, err := tls.X509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", c.CertFile, err)
		}
		all[c.CertificateFiles] = &pair
	}
	return all, nil
}

// tlsConfig returns how the listener l is encrypted; nil for in the clear. The
// certificates are those of the policy in force at each handshake, so that new
// ones need no new listener.
func (g *Gate) tlsConfig(l *config.TLS) (*tls.Config, error) {
	if l == nil {
		return nil, nil
	}
	lowest := uint16(tls.VersionTLS12)
	switch l.MinVersion {
	case "", "1.2":
	case "1.3":
		lowest = tls.VersionTLS13
	default:
		return nil, fmt.Errorf("TLS %q is not known: use 1.2 or 1.3", l.MinVersion)
	}
	held := g.policy.Load().certificates
	for _, names := range l.Certificates {
		if held[names] == nil {
			return nil, fmt.Errorf("certificate %s is not in the policy", names.CertFile)
		}
	}
	if len(l.Certificates) == 0 {
		return nil, errors.New("TLS without a certificate")
	}
	return &tls.Config{
		MinVersion: lowest,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return g.policy.Load().certificates.choose(l.Certificates, hello)
		},
	}, nil
}

// choose returns the first of the named certificates that serves the name and
// the algorithms that hello has, else one that serves the algorithms, else the
// first: the client is to see whom it reached.
func (c certificates) choose(names []config.CertificateFiles, hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	var first, usable *tls.Certificate
	anyName := *hello
	anyName.ServerName = ""
	for _, n := range names {
		pair := c[n]
		if pair == nil {
			continue // it was taken from the policy while the listener is being replaced
		}
		if first == nil {
			first = pair
		}
		if usable != nil && !serves(pair, hello.ServerName) || anyName.SupportsCertificate(pair) != nil {
			continue
		}
		if serves(pair, hello.ServerName) {
			return pair, nil
		}
		if usable == nil {
			usable = pair
		}
	}
	if usable != nil {
		return usable, nil
	}
	if first == nil {
		return nil, errors.New("the listener has no certificate any more")
	}
	return first, nil
}

// serves reports whether pair is made out to name (RFC 9525); any is to none.
func serves(pair *tls.Certificate, name string) bool {
	return name == "" || pair.Leaf.VerifyHostname(strings.TrimSuffix(name, ".")) == nil
}
