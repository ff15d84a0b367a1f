# cedrun. Every target is plain cmake and go; run any line by hand.
MAKEFLAGS    += --no-print-directory
JOBS         ?= $(shell nproc)
STATICCHECK  ?= go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
CLANG_FORMAT ?= .tools/bin/clang-format
NATIVE        = $(shell find cuda -name '*.h' -o -name '*.cc' -o -name '*.cu')
PROMPT       ?= Once upon a time
PREFIX       ?= /usr/local
# NVIDIA's library is loaded at run time, if there is one: its functions must be bound when called. Some compilers' default
# is to bind all at start, and then the program would not start without a driver.
LAZY          = -extldflags=-Wl,-z,lazy
GOFLAGS      ?= -ldflags=$(LAZY)
# Its header marks what it declares as deprecated, some thirty warnings.
CGO_CFLAGS   ?= -O2 -g -Wno-deprecated-declarations
export GOFLAGS CGO_CFLAGS
# A release tarball holds its version; a checkout's is known to go build.
RELEASE       = $(if $(wildcard VERSION),-ldflags "$(LAZY) -X main.release=$(shell cat VERSION)")

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

# The CUDA kernels on a simulated device: the program, and the kernels' tests on it. docs/kernels.md tells more.
SEEDS      ?= 0 1 2 3 4 5 6 7
sim: require
	cmake -S . -B build/sim -DCED_SIM=ON && cmake --build build/sim -j $(JOBS)
	go build -tags sim $(RELEASE) -o bin/cedrun-sim ./cmd/cedrun
test-sim: require
	cmake -S . -B build/sim -DCED_SIM=ON && cmake --build build/sim -j $(JOBS)
	$(MAKE) -j $(JOBS) -O $(addprefix test-sim-seed-,$(SEEDS)) $(if $(TESTS),,test-sim-80)
SIM        ?= build/sim
test-sim-seed-%:
	CED_SIM_SEED=$* CED_TEST_BODIES=cuda $(SIM)/ced_test $(TESTS)
# Forms without bulk copies and wgmma.
test-sim-80:
	CED_SIM_CAPABILITY=80 CED_TEST_BODIES=cuda build/sim/ced_test "dense_gemm: " "expert_gemm: "
# The program's way to a device, there: residency of experts, chunks and batches, and mini checkpoints whole (MINIS; there are
# also base, wide, vl, sched40). Minutes, by hand.
MINIS      ?= plain edge calm
test-sim-go: sim
	go test -tags sim -run 'Residency|Captur|Stale|ATrace|LackedMemory|ExpertsOfTheCPU' ./runtime/model
	CED_SIM_SEED=0 go test -tags sim -run 'Residency.*/half$$' ./runtime/model # copies as late as may be
	go test -tags sim -run 'Experts|Device|Step' ./runtime/engine
	go test -tags sim -run 'Device' ./cuda ./runtime/bench ./runtime/profile
	go test -tags sim -run 'Device|Auto|AServer' ./cmd/cedrun
	for m in $(MINIS); do bin/cedrun-sim conform --backend cuda --model testdata/mini/$$m || exit 1; done
# Minutes each, by hand: the same under the sanitizers. Each finds faults that the others do not see.
test-sim-asan: require
	cmake -S . -B build/sim-asan -DCED_SIM=ON -DCED_SANITIZE=address,undefined && cmake --build build/sim-asan -j $(JOBS)
	$(MAKE) -j $(JOBS) -O SIM=build/sim-asan test-sim-seed-1 test-sim-seed-2
test-sim-tsan: require
	cmake -S . -B build/sim-tsan -DCED_SIM=ON -DCED_SANITIZE=thread && cmake --build build/sim-tsan -j $(JOBS)
	$(MAKE) -j $(JOBS) -O SIM=build/sim-tsan test-sim-seed-1 test-sim-seed-2

# The real ones. NVCC: a compiler of CUDA 12.4 or newer; `make toolkit` fetches one into build/.
NVCC       ?= $(shell command -v nvcc || ls build/toolkit/bin/nvcc 2>/dev/null || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
NVCC_PATH   = $(abspath $(shell command -v $(NVCC)))
ARCHS      ?= 80-real;89-real;90a-real
# The binding of the driver finds its header, with ours before it, and its library, which is ours.
CUDA_ENV    = CGO_CFLAGS="$(CGO_CFLAGS) -I$(CURDIR)/cuda/driver/include -I$(CURDIR)/build/cuda/include" CGO_LDFLAGS=-L$(CURDIR)/build/cuda
toolkit:
	sh tools/toolkit.sh build/toolkit
toolkit-12:
	sh tools/toolkit.sh build/toolkit-12 12
nvcc:
	@sh tools/nvcc.sh "$(NVCC)" "$(ARCHS)"
cuda: nvcc require
	grep -qs '^CMAKE_CUDA_COMPILER:.*=$(NVCC_PATH)$$' build/cuda/CMakeCache.txt || rm -rf build/cuda/CMakeCache.txt build/cuda/CMakeFiles/[0-9]*
	cmake -S . -B build/cuda -DCED_CUDA=ON -DCMAKE_CUDA_COMPILER=$(NVCC_PATH) "-DCED_ARCHITECTURES=$(ARCHS)"
	cmake --build build/cuda -j $(JOBS)
	sh tools/cudart.sh $(NVCC) build/cuda
	$(CUDA_ENV) go build -tags cuda -ldflags "$(LAZY) -X main.cudaArchitectures=$(ARCHS) -X main.cudaToolkit=$$($(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')$(if $(wildcard VERSION), -X main.release=$(shell cat VERSION))" -o bin/cedrun-cuda ./cmd/cedrun
# That program without a driver, and with broken ones; and make cuda without a toolkit.
test-cuda: cuda
	sh tools/cudalink.sh bin/cedrun-cuda build/cuda/ced_test
	$(CUDA_ENV) go vet -tags cuda ./cuda/... ./cmd/... ./runtime/...
	$(CUDA_ENV) go test -tags cuda ./cuda/driver
# All that a machine with a GPU needs to prove the kernels there; and a test of that script, on the simulated device.
gpu-bundle: cuda
	mkdir -p dist && scripts/gpu-check.sh --bundle dist/gpu-check.tar.gz
test-gpu-check: sim
	scripts/gpu-check_test.sh
# Every kernel through a real compiler, without warnings and spills, and the instructions that must be there.
cuda-check: nvcc
	sh tools/cudacheck.sh $(NVCC) build/cuda-check
# And through the front end of CUDA 12.4, the oldest that is supported.
cuda-check-12:
	sh tools/toolkit.sh build/ptx-12 12-ptx
	sh tools/cudafront.sh build/ptx-12/bin/nvcc build/cuda-check-12

# The native tests for linux/arm64, on an emulator where the machine is another one, and a build of the program.
ARM64      ?= aarch64-linux-gnu-
# Go's preemption by signals can hang qemu.
ARM64_RUN  ?= qemu-aarch64 -L /usr/aarch64-linux-gnu -E GODEBUG=asyncpreemptoff=1
space       = $(subst ,, )
test-arm64: lib
	@command -v $(ARM64)g++ $(firstword $(ARM64_RUN)) >/dev/null || \
	  { echo "missing: a cross compiler and an emulator (apt-get install g++-aarch64-linux-gnu qemu-user)" >&2; exit 1; }
	cmake -S . -B build/arm64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=$(ARM64)g++ -DCMAKE_CROSSCOMPILING_EMULATOR="$(subst $(space),;,$(ARM64_RUN))"
	cmake --build build/arm64 -j $(JOBS)
	CED_EMULATOR="$(ARM64_RUN)" ctest --test-dir build/arm64 --verbose
	GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=$(ARM64)gcc go build -tags arm64cross -o build/arm64/cedrun ./cmd/cedrun
# The program itself there: minutes, and qemu has hung once in Go's runtime, so not in CI.
conform-arm64: test-arm64
	$(ARM64_RUN) build/arm64/cedrun generate --prompt "$(PROMPT)" --max-tokens 8
	for m in base wide plain; do $(ARM64_RUN) build/arm64/cedrun conform -m testdata/mini/$$m || exit 1; done

# The native tests and conformance under every instruction set that this machine has.
test-isa: all
	cmake --build build -j $(JOBS)
	sh tools/isa.sh

# The official clients of both APIs against the server with the demo model; Python and Node are needed, nothing else.
CLIENTS = build/clients
test-clients: all $(CLIENTS)/venv/ready $(CLIENTS)/node/ready
	cp tools/clients/node/*.mjs $(CLIENTS)/node/
	CEDRUN=$(CURDIR)/bin/cedrun PYTHONDONTWRITEBYTECODE=1 $(CLIENTS)/venv/bin/pytest -q -p no:cacheprovider tools/clients/python
	cd $(CLIENTS)/node && CEDRUN=$(CURDIR)/bin/cedrun node --test
$(CLIENTS)/venv/ready: tools/clients/python/requirements.txt
	python3 -m venv $(CLIENTS)/venv && $(CLIENTS)/venv/bin/pip install --quiet -r $< && touch $@
$(CLIENTS)/node/ready: tools/clients/node/package-lock.json
	mkdir -p $(CLIENTS)/node && cp tools/clients/node/package*.json $(CLIENTS)/node/
	npm ci --prefix $(CLIENTS)/node --no-audit --no-fund && touch $@
# Those for Go, in a module of their own.
test-clients-go: all
	cd tools/clients/go && CEDRUN=$(CURDIR)/bin/cedrun go test -count=1 ./...

# The server's page in a browser. make test runs this too, but only where it finds one.
CHROMIUM   ?= chromium
test-page: all
	@command -v "$(CHROMIUM)" >/dev/null || { echo "missing: a browser (apt-get install chromium, or CHROMIUM=PROGRAM)" >&2; exit 1; }
	CHROMIUM="$(CHROMIUM)" go test -race ./runtime/serve/page

# Many clients against the server, who come and go: answers, leaks, memory. Under 10 minutes times are not judged.
MINUTES    ?= 20
soak: all
	go run ./tools/soak -cedrun bin/cedrun -time $(MINUTES)m $(SOAK_FLAGS)

# Kills writers of KV pages, then servers under load, N times each, and checks what the next process finds.
N ?= 300
kill-loop: all
	go run ./tools/killloop -n $(N)
	go run ./tools/killloop -n $(N) -serve bin/cedrun
# What a long prefix costs that comes back from disk after a restart: MODEL=DIR; as root, or the page cache stays.
TOKENS ?= 65536
bench-restore: all
	go run ./bench/restore -cedrun bin/cedrun -m "$(MODEL)" -tokens $(TOKENS)
.PHONY: kill-loop bench-restore

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
	rm -rf bin build dist cuda/zz_stamp*.go
.PHONY: all run lib require test test-native test-sanitize test-go test-isa test-arm64 test-clients test-clients-go test-page conform-arm64 dist dist-check mutate soak install lint fmt clean
.PHONY: sim test-sim test-sim-80 test-sim-go test-sim-asan test-sim-tsan toolkit toolkit-12 nvcc cuda test-cuda cuda-check cuda-check-12 gpu-bundle test-gpu-check
