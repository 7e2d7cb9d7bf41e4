# `make help` lists what there is. Everything runs on a fresh Debian machine with Rust: missing packages are installed
# (as root) or named (otherwise).

NIC ?= veth
CARGO ?= cargo
BIN := target/release
HANDLERS := icmp_echo udp_pingpong

.PHONY: help demo-possible deps-build deps-demo deps-test build handlers demo test lint bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
	@echo "demo takes NIC=veth (default, as root) or NIC=loopback (without root)"

deps-build deps-demo deps-test: deps-%:
	@deploy/install-deps.sh $*

build: deps-build ## build spind, spinctl and the tools, optimised
	$(CARGO) build --release --locked --workspace --bins

handlers: build ## compile the handlers
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
	deploy/demo-loopback.sh
else
	deploy/demo.sh
endif

test: deps-test build handlers ## all tests: unit, property, qemu comparison, fuzzing (bounded), demo checks in namespaces
	$(CARGO) test --workspace --locked
	$(MAKE) --no-print-directory demo NIC=loopback
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory demo NIC=veth; \
	else echo "SKIPPED: the demo over AF_XDP between network namespaces needs root"; fi

lint: deps-build ## formatting, clippy, dependency licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	.ci/deny

bench: build handlers ## nanoseconds per packet through the engine, beside native code in the same run
	$(BIN)/spin-bench

clean: ## remove everything built
	$(CARGO) clean
