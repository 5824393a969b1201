package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// errAbsent says that the kernel's packages hold no such module.
var errAbsent = errors.New("this kernel has no module")

// modules are those that the machine was given, and what loading them said.
type modules map[string]error

// loadModules loads the files of a folder in the order of their names, which
// is NN-NAME.ko.
func loadModules(dir string) modules {
	all := modules{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.ko"))
	for _, file := range files {
		_, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".ko"), "-")
		all[name] = loadModule(file)
	}
	return all
}

func loadModule(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", filepath.Base(file), err)
	}
	return nil
}

// may is errAbsent where the module is missing.
func (m modules) may(name string) error {
	err, given := m[name]
	if !given {
		return fmt.Errorf("%w %s", errAbsent, name)
	}
	return err
}

// must is another error where the module is missing.
func (m modules) must(name string) error {
	if err := m.may(name); err != nil {
		return fmt.Errorf("no check without it: %s", err)
	}
	return nil
}
