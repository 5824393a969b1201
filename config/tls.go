package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// largestPEM bounds a certificate or key file: a chain is a few kB.
const largestPEM = 1 << 20

// TLS is how a listener is encrypted.
type TLS struct {
	Certificates []CertificateFiles // at least one; the first serves names that none has
	MinVersion   string             // "1.2" or "1.3"
}

// CertificateFiles name a certificate and its key, paths as written.
type CertificateFiles struct {
	CertFile string // PEM, the leaf first, then its chain
	KeyFile  string // PEM
}

// Certificate is what two files of HTTP.Certificates hold, checked to belong
// together.
type Certificate struct {
	CertificateFiles
	Cert, Key []byte    // PEM; Key is secret
	Ends      time.Time // of the certificate in the chain that ends first
}

// String says how a listener is encrypted, for a list of settings.
func (t *TLS) String() string {
	if t == nil {
		return "in the clear"
	}
	text := "TLS " + t.MinVersion + " and later with"
	for _, c := range t.Certificates {
		text += " " + c.CertFile
	}
	return text
}

// tls reads a listener's `tls`; nil if there is none.
func (o *object) tls() *TLS {
	t := o.child("tls", tlsLevel)
	if t == nil {
		return nil
	}
	conf := &TLS{MinVersion: t.tlsVersion()}
	if !t.need("certificates", "name at least one {cert_file: site.pem, key_file: site.key}") {
		return conf
	}
	if list, ok := t.values["certificates"].(*ast.SequenceNode); ok && len(list.Values) == 0 {
		t.errorf(list, "`certificates` is empty: name at least one {cert_file: site.pem, key_file: site.key}")
	}
	for _, n := range t.objects("certificates") {
		if c := t.object(n, certificateLevel); c != nil {
			conf.Certificates = append(conf.Certificates, c.certificate())
		}
	}
	return conf
}

func (o *object) tlsVersion() string {
	w, ok := o.word("min_version")
	if ok && w.text != "1.2" && w.text != "1.3" {
		o.errorf(w.node, "min_version %s: use 1.2 or 1.3", quote(w.text))
	}
	return w.text
}

// certificate reads a pair of names and what the files hold, once for all that
// name the same pair.
func (o *object) certificate() (names CertificateFiles) {
	if !o.need("cert_file", "it is the certificate with its chain, in PEM") || !o.need("key_file", "it is the certificate's key, in PEM") {
		return names
	}
	cert, okCert := o.word("cert_file")
	key, okKey := o.word("key_file")
	names = CertificateFiles{cert.text, key.text}
	if !okCert || !okKey || o.certificateOf(names) != nil {
		return names
	}
	c, err := o.loadCertificate(names)
	if err != nil {
		o.errorf(cert.node, "%s", err)
		return names
	}
	o.certificates = append(o.certificates, c)
	return names
}

func (r *reader) certificateOf(names CertificateFiles) *Certificate {
	for i := range r.certificates {
		if r.certificates[i].CertificateFiles == names {
			return &r.certificates[i]
		}
	}
	return nil
}

// loadCertificate reads a pair of files. Whether the certificate has ended is
// not its matter: a server with an old one is better than none.
func (r *reader) loadCertificate(names CertificateFiles) (c Certificate, err error) {
	c.CertificateFiles = names
	if c.Cert, err = r.read(beside(r.file, names.CertFile), largestPEM); err != nil {
		return c, fmt.Errorf("read certificate: %w", err)
	}
	if c.Key, err = r.read(beside(r.file, names.KeyFile), largestPEM); err != nil {
		return c, fmt.Errorf("read certificate's key: %w", err)
	}
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return c, fmt.Errorf("certificate %s with key %s: %w (both are PEM, and belong together)", quote(names.CertFile), quote(names.KeyFile), err)
	}
	for _, der := range pair.Certificate {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			return c, errors.New("certificate " + quote(names.CertFile) + " has one in its chain that does not read")
		}
		if c.Ends.IsZero() || one.NotAfter.Before(c.Ends) {
			c.Ends = one.NotAfter
		}
	}
	return c, nil
}
