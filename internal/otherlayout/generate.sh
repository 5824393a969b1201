#!/bin/sh
# Compiles the other version as gen.go says to compile the gate.
set -eu
cd "$(dirname "$0")/../.."
sed -n 's|^//go:generate \(.*\) -output-dir maps \(.*\) bpf bpf/headgate.bpf.c |\1 -output-dir internal/otherlayout \2 bpf bpf/otherlayout/other.bpf.c |p' gen.go | sh -eu
