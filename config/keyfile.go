package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// largestKeyTree is the largest key file that is read as YAML of any form: its
// syntax tree takes some 50 times its size. A larger one needs a key a line.
const largestKeyTree = 4 << 20

// ReadKeys reads the key file at path. It holds no more of it in memory than
// what it returns, where the file has a key a line. Its error is Errors, with
// line and column, or an *fs.PathError.
func ReadKeys(path string) (*Keyring, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if before.Size() > largestKeyFile {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("more than %d MiB", largestKeyFile>>20)}
	}
	r := &reader{file: path}
	ring, err := r.keys(io.LimitReader(f, largestKeyFile), before.Size())
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("it was changed meanwhile: write the new one beside it and rename it")}
	}
	return ring, r.errs.sorted(path).err()
}

// keys reads a key file of any size; its faults are r's.
func (r *reader) keys(from io.Reader, size int64) (*Keyring, error) {
	var start bytes.Buffer // a small file may have to be read again, as YAML
	small := size <= largestKeyTree
	if small {
		if _, err := start.ReadFrom(io.LimitReader(from, largestKeyTree+1)); err != nil {
			return nil, err
		}
		small = start.Len() <= largestKeyTree
		from = io.MultiReader(bytes.NewReader(start.Bytes()), from)
	}
	scanned, bad, err := scanKeys(from, size)
	if err != nil {
		return nil, err
	}
	var ring *Keyring
	var first, again uint32
	if bad == 0 && scanned.n > 0 {
		if ring, first, again = scanned.ring(); ring != nil {
			return ring, nil
		}
	}
	switch {
	case small:
		return NewKeyring(r.keyFile(start.Bytes())), nil
	case bad > 0:
		r.add(int(bad), 1, fmt.Sprintf("a key file of more than %d MiB has a key a line, written as `- {sha256: HASH, owner: NAME}` (tenant and plan may follow): this line is written otherwise", largestKeyTree>>20))
	case again > 0:
		r.add(int(again), 1, fmt.Sprintf("the key is there twice, first in line %d: remove one", first))
	default:
		r.add(1, 1, "the key file has no keys: write `- {sha256: ..., owner: ...}` for each, or [] alone for none")
	}
	return nil, nil
}
