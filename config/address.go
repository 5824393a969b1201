package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// checkAddress checks host:port to listen on; the host may be empty, port 0
// takes a free one.
func checkAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if _, err := parsePort(s); err == nil {
			return fmt.Errorf("%s is no address: write \":%s\"", quote(s), s)
		}
		return fmt.Errorf("%s is no address: write host:port, such as 127.0.0.1:8080, [::1]:8080 or \":8080\"", quote(s))
	}
	if _, err := parsePort(port); err != nil && port != "0" {
		return fmt.Errorf("%s has no port: write a number from 1 to 65535", quote(s))
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && !isHostName(strings.ToLower(host)) {
		return fmt.Errorf("%s: %s is no host", quote(s), quote(host))
	}
	return nil
}

// parseUpstream reads an http, https or h2c URL without path, and returns it in
// its short form.
func parseUpstream(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || !strings.Contains(s, "://"):
		return "", fmt.Errorf("%s is no URL: write one such as http://127.0.0.1:9000", quote(s))
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return "", fmt.Errorf("upstream with scheme %s: use http, https or h2c", quote(u.Scheme))
	case u.User != nil:
		return "", errors.New("upstream with a user in its URL: remove it")
	case u.Path != "" && u.Path != "/":
		return "", fmt.Errorf("upstream %s has a path: remove it, requests keep their own", quote(s))
	case strings.ContainsAny(s, "?#"):
		return "", fmt.Errorf("upstream %s has a query or fragment: remove it", quote(s))
	}
	host, port := u.Hostname(), u.Port()
	if _, err := netip.ParseAddr(host); err != nil && !isHostName(strings.ToLower(host)) {
		return "", fmt.Errorf("upstream %s: %s is no host", quote(s), quote(host))
	}
	if _, err := parsePort(port); err != nil && (port != "" || strings.HasSuffix(u.Host, ":")) {
		return "", fmt.Errorf("upstream %s: its port is a number from 1 to 65535", quote(s))
	}
	return u.Scheme + "://" + strings.ToLower(u.Host), nil
}
