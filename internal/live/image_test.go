package live

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// unpackImage writes the content of an OCI image layout (a folder) to root. It
// knows layers that only add: those of an image on scratch.
func unpackImage(t *testing.T, image, root string) {
	t.Helper()
	var index, manifest struct {
		Manifests []struct {
			Digest string `json:"digest"`
		} `json:"manifests"`
		Layers []struct {
			Digest string `json:"digest"`
		} `json:"layers"`
	}
	readJSON(t, filepath.Join(image, "index.json"), &index)
	if len(index.Manifests) != 1 {
		t.Fatalf("%s holds %d images", image, len(index.Manifests))
	}
	readJSON(t, blob(image, index.Manifests[0].Digest), &manifest)
	for _, l := range manifest.Layers {
		f, err := os.Open(blob(image, l.Digest))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		unpackLayer(t, tar.NewReader(z), root)
	}
}

// blob is the file of a digest such as sha256:abc.
func blob(image, digest string) string {
	return filepath.Join(image, "blobs", digest[:6], digest[7:])
}

func unpackLayer(t *testing.T, layer *tar.Reader, root string) {
	t.Helper()
	for {
		head, err := layer.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, filepath.Clean("/"+head.Name))
		mode := fs.FileMode(head.Mode).Perm()
		switch head.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, mode)
		case tar.TypeReg:
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), writeFrom(layer, path, mode))
		default:
			t.Fatalf("%s is of type %c", head.Name, head.Typeflag)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func writeFrom(r io.Reader, path string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
