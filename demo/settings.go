package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed headgate.yaml
var configText string

// settings fill the config.
type settings struct {
	plan
	Interface, Door, Upstream, Admin, Dir, Pins string
}

// write writes the config and its key file to the folder of the demo.
func (s settings) write() (path string, err error) {
	config, err := template.New("headgate.yaml").Parse(configText)
	if err != nil {
		return "", err
	}
	var text, keys bytes.Buffer
	if err := config.Execute(&text, s); err != nil {
		return "", err
	}
	for _, key := range []string{greedyKey, patientKey} {
		fmt.Fprintf(&keys, "- {sha256: %x, owner: %s}\n", sha256.Sum256([]byte(key)), key)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "keys.yaml"), keys.Bytes(), 0o600); err != nil {
		return "", err
	}
	path = filepath.Join(s.Dir, "headgate.yaml")
	return path, os.WriteFile(path, text.Bytes(), 0o600)
}
