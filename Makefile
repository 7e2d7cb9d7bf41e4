# `make help` lists the targets. They run on a fresh Debian machine with Rust: missing packages are installed (as root)
# or named (otherwise).

NIC ?= veth
CARGO ?= cargo
# Scripts expect build products there, so a CARGO_TARGET_DIR of the environment is overridden.
export CARGO_TARGET_DIR := $(CURDIR)/target
export SPIN_CC_CACHE ?= $(CURDIR)/target/spin-cc
# Incremental compilation makes a first build a fifth slower. Who has begun with it goes on with it.
ifeq ($(wildcard target/debug/incremental),)
export CARGO_INCREMENTAL := 0
endif
# Build profile: release, or dev, which shares its build products with the tests.
PROFILE ?= release
BIN := target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
HANDLERS := icmp_echo udp_pingpong filtering kvstore strided_ddt aggregate reduce histogram

.PHONY: test-budget test-long test-units bounds-long mutants help demo-possible demo-apps deps-build deps-demo deps-apps deps-test deps-bench deps-python python-wheel build handlers demo test lint test-aarch64 bench bench-all bench-compare bench-report bench-wire bench-engine bench-units bench-handlers bench-large bench-watchdog bench-installs bench-pspin bench-events bench-hook bench-proofs fuzz-long check-long loom install clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
	@echo "demo takes NIC=veth (default, as root) or NIC=loopback (without root)"

deps-build deps-demo deps-apps deps-test deps-bench deps-python: deps-%:
	@deploy/install-deps.sh $*

build: deps-build ## build spind, spinctl, the tools and the host libraries (PROFILE=release|dev)
	$(CARGO) build --profile $(PROFILE) --locked --workspace --bins --lib $(if $(filter dev,$(PROFILE)),--examples)
	deploy/link-libraries.sh $(BIN)

handlers: deps-build ## compile the shipped handlers
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

demo: demo-possible deps-demo build handlers ## run handlers that answer ping and a UDP client through spind (NIC=veth|loopback)
ifeq ($(NIC),loopback)
	SPIN_BIN=$${SPIN_BIN:-$(CURDIR)/$(BIN)} deploy/demo-loopback.sh
else
	SPIN_BIN=$${SPIN_BIN:-$(CURDIR)/$(BIN)} deploy/demo.sh
endif

demo-apps: deps-apps build python-wheel ## run the applications of host/apps in each language under traffic, and check their results (needs root)
	SPIN_BIN=$${SPIN_BIN:-$(CURDIR)/$(BIN)} SPIN_PYTHON=$(CURDIR)/target/python/$(PROFILE)/venv/bin/python deploy/demo-apps.sh

test: deps-test ## run all tests: unit, property, qemu comparison, bounded fuzzing, demo checks in namespaces
	deploy/test-suites.sh $(ENFORCE)
	$(MAKE) --no-print-directory demo NIC=loopback PROFILE=dev
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory demo demo-apps NIC=veth PROFILE=dev; \
	elif [ "$${SPIN_REQUIRE_ALL:-}" = 1 ]; then echo "SPIN_REQUIRE_ALL=1: the demos over AF_XDP need root"; exit 1; \
	else echo "SKIPPED: the demos over AF_XDP between network namespaces need root"; fi

test-budget: ## run all tests as `make test` does; a suite over its budget of CPU time is an error
	$(MAKE) --no-print-directory test ENFORCE=--enforce

test-long: bounds-long test-units fuzz-long check-long mutants ## run what `make test` bounds, in full, and a sample of planted faults

bounds-long: deps-test ## run the tests with all their cases (SPIN_TEST_LONG=1)
	SPIN_TEST_LONG=1 $(CARGO) test --locked --workspace --test oracle --test keys --test headers --test fpspin --test published --test packet_mode --test impair --test pktgen --test mpq_oracle --test header_rule --test xdp_filter --test hook_escape --test hook_handlers --test regions --test extending --test libspin_c --test persistence
	SPIN_TEST_LONG=1 $(MAKE) --no-print-directory loom

ENGINE_SUITES = accounts allocations descriptor_close handlers header_rule hook_rights leaks packet_mode replace sandbox send_rights steering undone unsent user_limits verdicts

test-units: deps-test ## run the tests of the engine, of spind and of applications with eight units
	SPIN_UNITS=8 $(CARGO) test --locked -p spin-engine $(ENGINE_SUITES:%=--test %)
	SPIN_UNITS=8:own $(CARGO) test --locked -p spin-engine --test sharing $(ENGINE_SUITES:%=--test %)
	SPIN_UNITS=8 $(CARGO) test --locked -p spin-tests

mutants: deps-test ## plant faults (cargo-mutants) that the tests should find: a sample of the core modules (GROUPS, SPIN_MUTANTS, SPIN_MUTANTS_SEED)
	deploy/mutants.sh $(GROUPS)

fuzz-long: deps-test ## compare the engines on 200,000 random programs (SPIN_FUZZ_PROGRAMS, SPIN_FUZZ_SEED)
	SPIN_FUZZ_PROGRAMS=$${SPIN_FUZZ_PROGRAMS:-200000} \
		$(CARGO) test --release --locked -p hpu-vm --test differential -- --nocapture --test-threads=1

check-long: deps-test ## check the order of handlers and all sums on 30 million packets, 3 million with shared tasks (SPIN_CHECK_PACKETS, SPIN_CHECK_SEED, SPIN_RACE_PACKETS)
	SPIN_CHECK_PACKETS=$${SPIN_CHECK_PACKETS:-30000000} SPIN_RACE_PACKETS=$${SPIN_RACE_PACKETS:-3000000} \
		$(CARGO) test --release --locked -p spin-engine --test checker --test overflow -- --nocapture

loom: deps-build ## check the synchronisation between threads in all interleavings with few preemptions (in all with SPIN_TEST_LONG=1)
	RUSTFLAGS="--cfg loom" $(CARGO) test --release --locked -p spin-sync --lib --target-dir target/loom

test-aarch64: ## run the tests that need no NIC as emulated aarch64 programs
	deploy/test-aarch64.sh

lint: deps-build ## check formatting, clippy, structure of the crates, dependency licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) fmt --manifest-path handlers/rust/Cargo.toml --check
	$(CARGO) clippy --manifest-path handlers/rust/Cargo.toml --target-dir $(CARGO_TARGET_DIR)/spin-handler --locked -- -D warnings
	$(CARGO) fmt --manifest-path .ci/structure/Cargo.toml --check
	$(CARGO) clippy --manifest-path .ci/structure/Cargo.toml --target-dir $(CARGO_TARGET_DIR)/tools-structure --all-targets --locked -- -D warnings
	.ci/lint-structure
	$(CARGO) fmt --manifest-path .ci/language/Cargo.toml --check
	$(CARGO) clippy --manifest-path .ci/language/Cargo.toml --target-dir $(CARGO_TARGET_DIR)/tools-language --all-targets --locked -- -D warnings
	.ci/lint-language
	.ci/deny

bench: bench-wire ## measure spind beside other programs on one wire, and in memory; write the report target/bench/report.html (needs root)
	for name in empty empty_three keep_headers spin to_host; do handlers/sdk/bin/spin-cc handlers/testing/$$name.c -o target/handlers/$$name.elf || exit 1; done
	$(BIN)/spin-bench-engine --rounds 5 --packets 300000 --json target/bench/engine.json
	handlers/build-vectors target/handlers/vector
	bench/handlers/build target/handlers
	bench/native/build target/native
	$(BIN)/spin-bench-handlers --rounds 5 --json target/bench/handlers.json
	$(MAKE) --no-print-directory bench-report

bench-wire: deps-bench build handlers ## measure spind beside other UDP echoes on a veth: throughput and round trips in interleaved rounds, and the load generator (needs root)
	$(BIN)/spin-bench-wire --rounds 10 --generator

bench-compare: deps-build handlers ## compare the engine with that of another commit in alternating rounds: make bench-compare BASE=COMMIT
	for name in empty empty_three keep_headers spin to_host; do handlers/sdk/bin/spin-cc handlers/testing/$$name.c -o target/handlers/$$name.elf || exit 1; done
	bench/compare.sh "$(BASE)"

bench-all: bench bench-large bench-watchdog bench-installs bench-pspin bench-events bench-hook ## run all benchmarks but the proofs

bench-engine: build handlers ## measure the engine in memory: time per packet and stage, latency, shares of contexts
	for name in empty empty_three keep_headers spin to_host; do handlers/sdk/bin/spin-cc handlers/testing/$$name.c -o target/handlers/$$name.elf || exit 1; done
	$(BIN)/spin-bench-engine

bench-units: deps-bench build handlers ## measure units: cost of one of eight, two threads and a model of more, cache lines that two units write
	for name in empty empty_three units; do handlers/sdk/bin/spin-cc handlers/testing/$$name.c -o target/handlers/$$name.elf || exit 1; done
	$(BIN)/spin-bench-units cost
	$(BIN)/spin-bench-units threads
	bench/unit-lines.sh $(BIN)

bench-handlers: build handlers ## measure nanoseconds per packet of the paper's handlers, of eight others and of native code for the same work
	handlers/sdk/bin/spin-cc handlers/testing/empty.c -o target/handlers/empty.elf
	handlers/build-vectors target/handlers/vector
	bench/handlers/build target/handlers
	bench/native/build target/native
	$(BIN)/spin-bench-handlers

bench-large: build ## measure a large image of ordinary code: cost of its translation, and its handlers translated, interpreted and native
	bench/large/build target/large
	$(BIN)/spin-bench-large

bench-watchdog: build ## measure the lateness of the watchdog for endless handlers
	$(BIN)/spin-bench-watchdog

bench-installs: build handlers ## measure installs and removals per second while two threads are under load, and the effect on other contexts
	for name in empty new_code; do handlers/sdk/bin/spin-cc handlers/testing/$$name.c -o target/handlers/$$name.elf || exit 1; done
	$(BIN)/spin-bench-installs

bench-events: build python-wheel ## measure the latency from a HostDirect command to the application, by the way in which it waits
	@mkdir -p target/handlers
	handlers/sdk/bin/spin-cc handlers/testing/direct_event.c -o target/handlers/direct_event.elf
	$(BIN)/spin-bench-events --python target/python/$(PROFILE)/venv/bin/python

bench-hook: deps-bench build handlers ## measure handlers in the XDP hook of a veth beside XDP_TX, the kernel's ICMP and user space (needs root)
	$(BIN)/spin-bench-hook

bench-pspin: build ## measure a simulation of 10,000 packets through libpspin, including loading its image
	bench/pspin.sh

bench-proofs: deps-bench build handlers ## check that a packet costs no allocation, lock, system call or clock reading
	for name in empty empty_three; do handlers/sdk/bin/spin-cc handlers/testing/$$name.c -o target/handlers/$$name.elf || exit 1; done
	bench/proofs.sh

python-wheel: deps-python ## build libspin's wheel for Python: target/python/PROFILE (PROFILE=release|dev)
	deploy/python-wheel.sh $(PROFILE)

bench-report: build ## write target/bench/report.html: plots and tables of the results files in target/bench
	$(BIN)/spin-bench-report

PREFIX ?= /usr
DESTDIR ?=

install: build handlers ## install programs, SDK, handler images, libraries, unit and sample configuration to PREFIX (/usr; with DESTDIR before it)
	deploy/install.sh "$(BIN)" "$(PREFIX)" "$(DESTDIR)"

clean: ## remove everything built
	$(CARGO) clean
