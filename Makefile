# Deadstop: `make run` starts it, `make test` checks everything. `make help` lists the rest.

CARGO ?= cargo
TRACES ?= ../shared/traces
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help run demo soak build test check fmt lint rules unit doc deny clients api leaks bench bench-gateway million traces recorded mutants clean

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

run: build ## Build it and start the gateway; it prints what to do next
	./target/release/deadstop serve

demo: build ## Two runaways stopped and one healthy agent let through, without a key
	./target/release/deadstop demo

build: ## Build the program
	$(CARGO) build --release --locked --package deadstop

test: fmt lint rules unit doc recorded clients api leaks ## Check everything: format, lints, house rules, tests, documentation, real SDKs, the API, secrets

check: fmt lint rules deny ## The checks without the tests, and the licences of dependencies

fmt:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

rules: ## Check that crates depend on each other as the architecture says
	$(CARGO) xtask rules

unit: ## Run the tests
	$(CARGO) test --workspace --locked

doc:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --quiet

clients: ## Real SDKs, installed from their registries, against the real program
	$(CARGO) build --locked --package deadstop
	DEADSTOP_BIN=target/debug/deadstop tests/clients/run

api: ## The API against its own document, with cases made up by schemathesis
	$(CARGO) build --locked --package deadstop
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/api/run

leaks: ## Secrets on every way in, and a search for them in all that is kept or said
	$(CARGO) build --locked --package deadstop
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/api/leaks

bench-gateway: ## Side by side with nginx and others, on loopback (needs nginx and wrk, and says so)
	$(CARGO) build --release --locked -p deadstop -p deadstop-server --bin deadstop --example standin --example load
	bench/gateway/run

deny: ## Check licences, duplicates and sources of dependencies (installs cargo-deny if it is missing)
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check licenses bans sources

soak: ## The long tests: thousands of cases where `make test` runs hundreds
	DEADSTOP_SOAK=1 PROPTEST_CASES=5000 $(CARGO) test --release --workspace --locked
	$(CARGO) run --release --locked --package deadstop-process --example soak -- 200
	$(CARGO) build --release --locked --package deadstop
	DEADSTOP_SOAK=1 DEADSTOP_BIN=$(TARGET)/release/deadstop tests/api/run
	DEADSTOP_SOAK=1 DEADSTOP_BIN=$(TARGET)/release/deadstop tests/api/leaks

bench: ## Measure what the project promises
	$(CARGO) build --release --locked --package xtask
	DEADSTOP_TRACES=$(TRACES) ./target/release/xtask bench

million: ## A million calls: size, cost of writing, time of reading, on SQLite and on PostgreSQL
	$(CARGO) build --release --locked --package deadstop-store --example million
	./target/release/examples/million
	scripts/postgres > target/postgres && \
		./target/release/examples/million "$$(tail -n 1 target/postgres)"; \
		status=$$?; scripts/postgres stop "$$(head -n 1 target/postgres)"; exit $$status

traces: ## Judge the strict preset on the labelled traces in TRACES
	$(CARGO) xtask traces $(TRACES)

recorded:
	@if [ -d "$(TRACES)" ]; then $(MAKE) --no-print-directory traces; \
	else echo "no recorded traces at $(TRACES): set TRACES to judge the detectors on your own"; fi

mutants: ## See whether the tests of core notice faults put in on purpose (installs cargo-mutants)
	@command -v cargo-mutants >/dev/null || $(CARGO) install --locked cargo-mutants
	PROPTEST_CASES=16 $(CARGO) mutants --package deadstop-core --jobs 2 --timeout 60

clean: ## Remove what was built
	$(CARGO) clean
