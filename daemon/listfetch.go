package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/config"
)

const (
	fetchTime     = time.Minute // for a whole list
	mostRedirects = 5
)

// fetcher asks for lists over https.
type fetcher struct {
	client *http.Client
	agent  string
}

func newFetcher(version string) fetcher {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	t.DisableKeepAlives = true // the next time is an hour away
	t.ResponseHeaderTimeout = fetchTime / 2
	return fetcher{client: &http.Client{Transport: t, CheckRedirect: onlySecure}, agent: "headgate/" + version}
}

// onlySecure follows redirects to https alone: a list that others can change
// on its way here could block anyone.
func onlySecure(r *http.Request, via []*http.Request) error {
	if r.URL.Scheme != "https" {
		return fmt.Errorf("it redirects to %s, which is no https", r.URL.Redacted())
	}
	if len(via) > mostRedirects {
		return fmt.Errorf("it redirects more than %d times", mostRedirects)
	}
	return nil
}

// get asks for a list. was is what it held before: a source that says that this
// still holds is believed.
func (f fetcher) get(ctx context.Context, was keptList, now time.Time) keptList {
	k := was
	k.tried = now
	prefixes, etag, err := f.ask(ctx, was)
	switch {
	case errors.Is(err, errUnchanged):
		k.read, k.err = now, nil
	case err != nil:
		k.err = err
	default:
		k.prefixes, k.etag, k.read, k.err = prefixes.Prefixes, etag, now, nil
	}
	return k
}

// errUnchanged is an answer that says that nothing changed.
var errUnchanged = errors.New("unchanged")

func (f fetcher) ask(ctx context.Context, was keptList) (config.PrefixFile, string, error) {
	var none config.PrefixFile
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, was.URL, nil)
	if err != nil {
		return none, "", err
	}
	if req.URL.Scheme != "https" {
		return none, "", fmt.Errorf("%s is no https address", req.URL.Redacted())
	}
	req.Header.Set("User-Agent", f.agent)
	if was.etag != "" {
		req.Header.Set("If-None-Match", was.etag)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return none, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified && was.etag != "" {
		return none, "", errUnchanged
	}
	if resp.StatusCode != http.StatusOK {
		return none, "", fmt.Errorf("%s answered %s", req.URL.Redacted(), resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, config.LongestList+1))
	if err != nil {
		return none, "", fmt.Errorf("read %s: %w", req.URL.Redacted(), err)
	}
	file, err := check(was.List, data)
	return file, resp.Header.Get("ETag"), err
}

// check holds what came against what was announced.
func check(l config.List, data []byte) (config.PrefixFile, error) {
	if len(data) > config.LongestList {
		return config.PrefixFile{}, fmt.Errorf("%s is larger than %d MB", l.URL, config.LongestList>>20)
	}
	if sum := sha256.Sum256(data); l.SHA256 != "" && hex.EncodeToString(sum[:]) != l.SHA256 {
		return config.PrefixFile{}, fmt.Errorf("%s has SHA-256 %x, not the sha256 of the config", l.URL, sum)
	}
	f, err := config.ReadPrefixes(l.URL, bytes.NewReader(data))
	if err = broken(f, err); err == nil && len(f.Prefixes) == 0 {
		err = fmt.Errorf("%s holds no prefix", l.URL)
	}
	return f, err
}
