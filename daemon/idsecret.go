package daemon

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/headgate/headgate/l7"
)

// secretFile is the file in state.dir that holds what request ids are sealed
// with, so that the ids of before a restart can still be opened.
const secretFile = "request-id.key"

// idSecret returns the secret of request ids under dir, made if there is none.
// A file that is not whole is replaced: ids made with it are lost.
func idSecret(dir string) (secret []byte, warning string, err error) {
	path := filepath.Join(dir, secretFile)
	secret, err = os.ReadFile(path)
	switch {
	case err == nil && len(secret) == l7.SecretSize:
		return secret, "", nil
	case err == nil:
		warning = fmt.Sprintf("%s has %d bytes, not %d, and is made anew: request ids given so far cannot be explained", path, len(secret), l7.SecretSize)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, "", fmt.Errorf("read the secret of request ids: %w", err)
	}
	secret = make([]byte, l7.SecretSize)
	rand.Read(secret)
	if err := renameio.WriteFile(path, secret, 0o600); err != nil {
		return nil, "", fmt.Errorf("keep the secret of request ids: %w", err)
	}
	return secret, warning, nil
}

// hostName is how request ids name this host.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
