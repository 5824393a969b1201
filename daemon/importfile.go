package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/headgate/headgate/config"
)

// Prefixes of a bulk are kept in a file of their own, under state.dir/imports,
// that is written once: the state file, which is written anew at each change,
// stays small. The file is named by the SHA-256 of what it holds.

func (s store) imports() string { return filepath.Join(filepath.Dir(s.path), "imports") }

// keepImport writes b's prefixes, unless they are there, and notes the file.
func (s store) keepImport(b *bulk) error {
	text := prefixLines(b.prefixes)
	b.File, b.Count = importName(text), len(b.prefixes)
	path := filepath.Join(s.imports(), b.File)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(s.imports(), 0o700); err != nil {
		return fmt.Errorf("make a folder for imports: %w (nothing was changed)", err)
	}
	if err := renameio.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write import: %w (nothing was changed: make room or let root write there)", err)
	}
	return nil
}

// loadImport reads b's prefixes. A file that is damaged is an error, as a
// damaged state file is.
func (s store) loadImport(b *bulk) error {
	path := filepath.Join(s.imports(), filepath.Base(b.File))
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read import: %w (bring it back, or take it out of %s)", err, s.path)
	}
	if importName(data) != b.File {
		return fmt.Errorf("read import %s: it is not what was written (bring it back, or take it out of %s)", path, s.path)
	}
	f, err := config.ReadPrefixes(path, bytes.NewReader(data))
	if err == nil && len(f.Broken) > 0 {
		err = f.Broken
	}
	b.prefixes = f.Prefixes
	return err
}

// tidyImports removes the files that neither st nor used speaks of.
func (s store) tidyImports(st state, used map[string]bool) error {
	for _, list := range []bulks{st.BlockImports, st.AllowImports} {
		for _, b := range list {
			used[b.File] = true
		}
	}
	files, err := os.ReadDir(s.imports())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		if !used[f.Name()] && strings.HasSuffix(f.Name(), ".txt") {
			err = errors.Join(err, os.Remove(filepath.Join(s.imports(), f.Name())))
		}
	}
	return err
}

func importName(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]) + ".txt"
}

func prefixLines(prefixes []netip.Prefix) []byte {
	text := make([]byte, 0, 20*len(prefixes))
	for _, p := range prefixes {
		text = append(p.AppendTo(text), '\n')
	}
	return text
}
