package spray

//go:generate go tool bpf2go -cc clang-19 -target bpfel -type spray_setting -type spray_state table ../../bpf/spray/spray.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -Wno-unused-function -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -target bpfel lru ../../bpf/spray/spray.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -Wno-unused-function -DBUCKETS_LRU -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -target bpfel counted ../../bpf/spray/counted.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -Wno-unused-function -I/usr/include/x86_64-linux-gnu
