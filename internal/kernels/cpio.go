package main

import (
	"fmt"
	"io"
)

// file is a regular file of an archive; folders come with their names ending
// in a slash.
type file struct {
	name    string
	mode    uint32 // permissions
	content []byte
}

const (
	regular = 0o100000
	folder  = 0o040000
	trailer = "TRAILER!!!"
)

// writeCPIO writes an archive as the kernel unpacks it into its first file
// system: the "newc" format of Documentation/driver-api/early-userspace.
// Folders must come before what is in them.
func writeCPIO(w io.Writer, files []file) error {
	for i, f := range append(files, file{name: trailer}) {
		kind := uint32(regular)
		name := f.name
		if n := len(name); n > 0 && name[n-1] == '/' {
			kind, name = folder, name[:n-1]
		}
		if f.name == trailer {
			kind = 0
		}
		if err := writeEntry(w, uint32(i+1), kind|f.mode, name, f.content); err != nil {
			return fmt.Errorf("write %s into the archive: %w", name, err)
		}
	}
	return nil
}

func writeEntry(w io.Writer, inode, mode uint32, name string, content []byte) error {
	const links = 1
	header := "070701"
	for _, field := range []uint32{
		inode, mode, 0, 0, links, 0, uint32(len(content)), 0, 0, 0, 0, uint32(len(name) + 1), 0,
	} {
		header += fmt.Sprintf("%08X", field)
	}
	for _, part := range [][]byte{padded([]byte(header + name + "\x00")), padded(content)} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// padded fills up to a multiple of four bytes. It never writes into b's array.
func padded(b []byte) []byte {
	return append(b[:len(b):len(b)], make([]byte, (4-len(b)%4)%4)...)
}
