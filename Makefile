# cedrun. Every target is plain cmake and go; run any line by hand.
MAKEFLAGS    += --no-print-directory
JOBS         ?= $(shell nproc)
STATICCHECK  ?= go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
CLANG_FORMAT ?= .tools/bin/clang-format
NATIVE        = $(shell find cuda -name '*.h' -o -name '*.cc' -o -name '*.cu')
PROMPT       ?= Once upon a time
PREFIX       ?= /usr/local
# A release tarball holds its version; a checkout's is known to go build.
RELEASE       = $(if $(wildcard VERSION),-ldflags "-X main.release=$(shell cat VERSION)")

all: lib
	go build $(RELEASE) -o bin/cedrun ./cmd/cedrun
run: all
	bin/cedrun generate --prompt "$(PROMPT)" --max-tokens 200
lib: require
	cmake -S . -B build $(CMAKE_FLAGS) && cmake --build build -j $(JOBS) --target ced_stamp
install: all
	install -d "$(DESTDIR)$(PREFIX)/bin" && install -m 755 bin/cedrun "$(DESTDIR)$(PREFIX)/bin/cedrun"

require:
	@sh tools/require.sh

test: test-native test-sanitize test-go
test-native: lib
	cmake --build build -j $(JOBS)
	ctest --test-dir build --verbose
test-sanitize: require
	cmake -S . -B build/sanitize -DCED_SANITIZE=address,undefined && cmake --build build/sanitize -j $(JOBS)
	ctest --test-dir build/sanitize --verbose
test-go: all
	go vet ./...
	go test -race ./...

# A release tarball; dist-check also builds and runs the program from it, without network.
dist:
	sh tools/dist.sh
dist-check: require
	sh tools/dist.sh check

# Puts faults into a copy of the tree and expects a test to fail for each; some minutes, not in CI.
mutate: require
	go run ./tools/mutate

lint: all $(CLANG_FORMAT)
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "make fmt mends these"; exit 1; }
	@$(CLANG_FORMAT) --dry-run --Werror $(NATIVE)
	go vet ./... && $(STATICCHECK) ./...
	sh tools/symbols.sh
fmt: $(CLANG_FORMAT)
	gofmt -w . && $(CLANG_FORMAT) -i $(NATIVE)
.tools/bin/clang-format:
	python3 -m venv .tools && .tools/bin/pip install --quiet clang-format==19.1.7

clean:
	rm -rf bin build dist cuda/zz_stamp.go
.PHONY: all run lib require test test-native test-sanitize test-go dist dist-check mutate install lint fmt clean
