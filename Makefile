# `make help` lists what there is. Everything runs on a fresh Debian machine with Rust: missing packages are installed
# (as root) or named (otherwise).

NIC ?= veth
CARGO ?= cargo
# Scripts look for what was built there, wherever cargo is told to build otherwise.
export CARGO_TARGET_DIR := $(CURDIR)/target
# How programs are built: release, or dev, with what tests build as well.
PROFILE ?= release
BIN := target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
HANDLERS := icmp_echo udp_pingpong filtering kvstore strided_ddt aggregate reduce histogram

.PHONY: help demo-possible deps-build deps-demo deps-test deps-bench build handlers demo test lint test-aarch64 bench bench-engine bench-handlers bench-watchdog bench-installs bench-pspin bench-proofs fuzz-long check-long loom install clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
	@echo "demo takes NIC=veth (default, as root) or NIC=loopback (without root)"

deps-build deps-demo deps-test deps-bench: deps-%:
	@deploy/install-deps.sh $*

build: deps-build ## build spind, spinctl, the tools, libfpspin and libpspin (PROFILE=release|dev)
	$(CARGO) build --profile $(PROFILE) --locked --workspace --bins --lib $(if $(filter dev,$(PROFILE)),--examples)

handlers: deps-build ## compile the handlers
	@mkdir -p target/handlers
	@for name in $(HANDLERS); do \
		echo "spin-cc handlers/$$name/$$name.c -o target/handlers/$$name.elf"; \
		handlers/sdk/bin/spin-cc handlers/$$name/$$name.c -o target/handlers/$$name.elf || exit 1; \
	done

demo-possible:
	@case "$(NIC)" in \
	loopback) ;; \
	veth) [ "$$(id -u)" = 0 ] || { echo "make demo needs root (namespaces, XDP); without it: make demo NIC=loopback"; exit 1; } ;; \
	*) echo "NIC=$(NIC): expected veth or loopback"; exit 1 ;; \
	esac

demo: demo-possible deps-demo build handlers ## handlers answer ping and a UDP client through spind (NIC=veth|loopback)
ifeq ($(NIC),loopback)
	SPIN_BIN=$${SPIN_BIN:-$(CURDIR)/$(BIN)} deploy/demo-loopback.sh
else
	SPIN_BIN=$${SPIN_BIN:-$(CURDIR)/$(BIN)} deploy/demo.sh
endif

test: deps-test ## all tests: unit, property, qemu comparison, fuzzing (bounded), demo checks in namespaces
	$(CARGO) test --workspace --locked
	@# As a pipeline's first core receives, with all messages in its local share.
	SPIN_PIPELINE=1 $(CARGO) test --locked -p spin-engine --test handlers --test verdicts
	$(MAKE) --no-print-directory loom
	deploy/test-install.sh
	$(MAKE) --no-print-directory demo NIC=loopback PROFILE=dev
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory demo NIC=veth PROFILE=dev; \
	else echo "SKIPPED: the demo over AF_XDP between network namespaces needs root"; fi

fuzz-long: deps-test ## a million random programs, compared between engines (SPIN_FUZZ_PROGRAMS, SPIN_FUZZ_SEED)
	SPIN_FUZZ_PROGRAMS=$${SPIN_FUZZ_PROGRAMS:-1000000} \
		$(CARGO) test --release --locked -p hpu-vm --test differential -- --nocapture --test-threads=1

check-long: deps-test ## 100 million packets, and 10 with lent tasks: order of handlers, all sums (SPIN_CHECK_PACKETS, SPIN_CHECK_SEED, SPIN_RACE_PACKETS)
	SPIN_CHECK_PACKETS=$${SPIN_CHECK_PACKETS:-100000000} SPIN_RACE_PACKETS=$${SPIN_RACE_PACKETS:-10000000} \
		$(CARGO) test --release --locked -p spin-engine --test checker --test overflow -- --nocapture

loom: deps-build ## what threads wait for each other with, in all interleavings, or all with few preemptions
	RUSTFLAGS="--cfg loom" $(CARGO) test --release --locked -p spin-sync --lib --target-dir target/loom

test-aarch64: ## the tests that need no NIC as aarch64 programs, emulated
	deploy/test-aarch64.sh

lint: deps-build ## formatting, clippy, structure of the crates, dependency licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) fmt --manifest-path handlers/rust/Cargo.toml --check
	$(CARGO) clippy --manifest-path handlers/rust/Cargo.toml --target-dir $(CARGO_TARGET_DIR)/spin-handler --locked -- -D warnings
	$(CARGO) fmt --manifest-path .ci/structure/Cargo.toml --check
	$(CARGO) clippy --manifest-path .ci/structure/Cargo.toml --target-dir $(CARGO_TARGET_DIR)/tools-structure --all-targets --locked -- -D warnings
	.ci/lint-structure
	.ci/deny

bench: bench-engine bench-handlers bench-watchdog bench-installs bench-pspin ## all figures

bench-engine: build handlers ## the engine in memory: time per packet and stage, latency, shares of tenants
	for name in empty empty_three keep_headers spin to_host; do handlers/sdk/bin/spin-cc handlers/testing/$$name.c -o target/handlers/$$name.elf || exit 1; done
	$(BIN)/spin-bench-engine

bench-handlers: build handlers ## nanoseconds per packet of the paper's handlers, beside the same work in native code
	handlers/sdk/bin/spin-cc handlers/testing/empty.c -o target/handlers/empty.elf
	handlers/build-vectors target/handlers/vector
	bench/native/build target/native
	$(BIN)/spin-bench-handlers

bench-watchdog: build ## how late the watchdog ends handlers that never end
	$(BIN)/spin-bench-watchdog

bench-installs: build handlers ## contexts installed and removed a second while two threads are under load, and what others lose
	for name in empty new_code; do handlers/sdk/bin/spin-cc handlers/testing/$$name.c -o target/handlers/$$name.elf || exit 1; done
	$(BIN)/spin-bench-installs

bench-pspin: build ## how long a simulation of 10,000 packets through libpspin takes, with loading its image
	bench/pspin.sh

bench-proofs: deps-bench build handlers ## nothing is allocated, locked, asked of the kernel or of the clock per packet
	for name in empty empty_three; do handlers/sdk/bin/spin-cc handlers/testing/$$name.c -o target/handlers/$$name.elf || exit 1; done
	bench/proofs.sh

PREFIX ?= /usr
DESTDIR ?=

install: build handlers ## programs, SDK, handlers' images, libraries, unit and sample configuration to PREFIX (/usr; DESTDIR before it)
	deploy/install.sh "$(BIN)" "$(PREFIX)" "$(DESTDIR)"

clean: ## remove everything built
	$(CARGO) clean
