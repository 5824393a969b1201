// Package headgate holds the directive that compiles the XDP program; its
// generated loader is in maps. The compiler is clang 19.
package headgate

//go:generate go tool bpf2go -cc clang-19 -output-dir maps -go-package maps -target bpfel -type reason -type slot_kind -type line -type slot -type limit -type limit_set -type plan -type class_group -type interface_key -type dimension -type prefix -type prefix_line4 -type prefix_line6 -type prefix_name -type root_group -type own_address -type control -type meta -type count -type cpu -type limit_name -type limit_id -type rule_counter -type overflow -type extra -type source_key -type event -type outcome -type sample -type sample_ring -type capture -type capture_ring bpf bpf/headgate.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -output-dir maps -go-package maps -target bpfel cover bpf/cover.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
