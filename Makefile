.DEFAULT_GOAL := help
.PHONY: help generate build check test soak test-kernels demo bench image fuzz clean

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 10s

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

generate: ## compile the XDP program (clang 19) into maps/
	@deploy/packages generate
	go generate ./...

build: ## bin/headgate
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/headgate ./cmd/headgate

check: ## gofmt, vet, staticcheck, and generated objects are fresh
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt -w" $$unformatted; exit 1; }
	go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	@deploy/packages generate || true
	@.ci/fresh

test: build ## everything that is tested; as root nothing is skipped
	@deploy/packages test
	@deploy/packages bench peers || true
	@mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf 2>/dev/null || true
	go vet ./...
	GOARCH=arm64 go build ./...
	go run ./internal/testsum -p 1 -timeout 20m ./...

soak: ## floods of 2 million sources and 10 million keys, no gap in 100 reloads and 90 restarts, a small log (root, about 15 min)
	@deploy/packages test
	HEADGATE_SOAK=1 go test ./internal/live -run 'Soak|Gap|Killed' -v -timeout 40m -soak 30s
	HEADGATE_SOAK=1 go test ./limit -run 'BytesAKey|FloodOfMillions' -v

test-kernels: ## boot Debian's kernels in QEMU and test on them (10 min, downloads 150 MB); ONLY=6.1,7.x boots some
	@deploy/packages kernels
	go run ./internal/kernels -only '$(ONLY)' -mirror '$(MIRROR)'

demo: build ## both gates against a flood, live (root, about 30 s)
	@deploy/packages test
	go run ./demo

bench: build ## the table of bench/latest.json; BENCH=flood runs a part (packet, flood, http, http-proxy, fleet), ALL_PEERS=1 compares with more
	@deploy/packages bench $(if $(ALL_PEERS),peers) || true
	go run ./bench -part=$(BENCH) $(if $(ALL_PEERS),-all-peers)

image: build ## bin/image, a container image on scratch, tried as the DaemonSet (root, about 1 min)
	@deploy/packages test image
	deploy/image bin headgate:$(VERSION)
	HEADGATE_IMAGE=$(CURDIR)/bin/image go test -count=1 -run '^TestDaemonSet' ./internal/live

fuzz: ## each fuzz target for FUZZTIME (10s)
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null || exit 1; \
		done; \
	done

clean: ## remove what was built
	rm -rf bin bench/latest.json
