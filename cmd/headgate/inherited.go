package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// inherited returns the variable of the first process, from pid upwards, whose
// environment has it. proc is where procfs is; what may not be read there is
// passed over.
func inherited(proc string, pid int, name string) string {
	const most = 64 // processes; a tree that changes while it is walked may go in circles
	for range most {
		if pid <= 1 {
			return ""
		}
		dir := filepath.Join(proc, strconv.Itoa(pid))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		for entry := range bytes.SplitSeq(env, []byte{0}) {
			if value, ok := strings.CutPrefix(string(entry), name+"="); ok && value != "" {
				return value
			}
		}
		pid = parentOf(dir)
	}
	return ""
}

// parentOf reads the parent from a process's status; 0 if it cannot.
func parentOf(dir string) int {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "PPid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(rest))
			return pid
		}
	}
	return 0
}
