# Deadstop: `make run` starts it, `make test` checks everything. `make help` lists the rest.

CARGO ?= cargo
TRACES ?= ../shared/traces
COMMANDS ?= ../shared/commands
TARGET := $(or $(CARGO_TARGET_DIR),target)
XTASK := $(TARGET)/debug/xtask

NPM ?= npm
ENGINE := --package deadstop-core --package deadstop-effect --package deadstop-protocol --package deadstop-gate

.PHONY: fuzz bombs differential help program quick install dist crates docs book cast run demo sim soak build page page-check page-test pictures test check fmt lint rules unit fleet doc deny advisories sbom clients mcp-clients hosts frameworks sdk-python sdk-node api telemetry leaks bench bench-gateway bench-sdk bench-hooks bench-mcp bench-cluster compare faults packaging million commands traces recorded mutants mutants-reader flipped clean emitters bench-telemetry

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

run: build ## Build it and start the gateway; it prints what to do next
	./target/release/deadstop serve

demo: build ## Two runaways stopped and one healthy agent let through, without a key
	./target/release/deadstop demo

build: page ## Build the program, with its page inside
	$(CARGO) build --release --locked --package deadstop

PREFIX ?= $(HOME)/.local

install: build ## Copy the program to PREFIX/bin (~/.local/bin unless said)
	install -D -m 755 target/release/deadstop $(PREFIX)/bin/deadstop
	@command -v deadstop >/dev/null || echo "note: $(PREFIX)/bin is not in PATH"

dist: build ## Everything that people install, into dist/, and tried in clean folders without a network
	bindings/python/check build
	bindings/node/check build
	scripts/dist
	tests/dist/run

crates: page ## Pack the crates, as cargo publish would, the page inside; needs the registry's index
	$(CARGO) package --locked --no-verify --workspace --exclude xtask --exclude deadstop-python --exclude deadstop-node

page: dashboard/dist/index.html ## Build the dashboard; needs Node 20.19 or later, packages come from npm

dashboard/dist/index.html: dashboard/node_modules/.package-lock.json dashboard/index.html \
		dashboard/vite.config.ts $(shell find dashboard/src dashboard/public -type f)
	cd dashboard && $(NPM) run build

dashboard/node_modules/.package-lock.json: dashboard/package.json dashboard/package-lock.json
	@command -v $(NPM) >/dev/null || { echo "the dashboard is built with Node 20.19 or later: install it (https://nodejs.org), or apt-get install nodejs npm"; exit 1; }
	# Not `ci`: lock files leave out what only other systems need, and `ci` takes that for an error.
	cd dashboard && $(NPM) install --no-save --no-fund --no-audit
	@touch $@

page-check: program ## Check the dashboard: its tests, and whether its types are those of the API
	cd dashboard && $(NPM) test && $(NPM) run types:check

page-test: page-check ## The dashboard in a real browser, against the real program (installs chromium if it can)
	tests/page/run

pictures: program ## Take the pictures of docs/pages anew, and write docs/pages.md (needs Python with Pillow)
	rm -rf target/shots
	cd tests/page && npm ci --no-fund --no-audit && SHOTS=../../target/shots node shots.mjs
	python3 tests/page/shrink.py target/shots docs/pages

# What has real clients mostly waits for them: three at a time, and the lints use what they leave of the
# processors. The longest come first.
REAL := page-test lint clients sdk-node sdk-python api hosts docs mcp-clients leaks packaging emitters doc

# What is built once is built faster without the notes for building it again.
test: export CARGO_INCREMENTAL := 0
test: fmt page rules unit fleet recorded ## Check everything: format, lints, house rules, tests, the book and its code, real SDKs, real coding agents, the API, secrets, the page in a browser
	$(MAKE) --no-print-directory --jobs=3 --keep-going --output-sync=target $(REAL)

check: fmt lint rules deny ## The checks without the tests, and the licences of dependencies

fmt:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --test fleet --locked -- -D warnings

rules: program ## Check that crates depend on each other as the architecture says, and the register of the seed pages
	$(XTASK) rules
	$(XTASK) seeds

# Made-up cases are the same in every run here, so that a change fails by what it changed;
# `make soak` makes up thousands of others each time.
unit: ## Run the Rust tests; .config/nextest.toml says which may be tried again, and why
	NEXTEST_TEST_THREADS=$${NEXTEST_TEST_THREADS:-3} PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-1} \
		scripts/tests --workspace --locked
	$(CARGO) test --workspace --locked --doc --quiet

quick: ## What a change to a guard needs before a commit: format, lints and tests of the engine
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked $(ENGINE) --all-targets -- -D warnings
	$(CARGO) xtask rules
	PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-1} scripts/tests --locked $(ENGINE)

# Of the whole workspace, as the tests are: with other features cargo would compile every crate again.
program: page ## The program and what the checks with real clients need, not optimised
	$(CARGO) build --locked --workspace --bin deadstop --bin xtask --example seed --example calls

fleet: program ## The server's cases on three processes with a real PostgreSQL and Redis, and cases of a fleet; `make faults` has the rest
	NEXTEST_TEST_THREADS=3 NEXTEST_ARGS='not test(/^fleet::faults/)' \
		RUST_TEST_THREADS=3 TEST_ARGS='--skip fleet::faults' scripts/tests --locked --workspace --test fleet

doc:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --quiet

clients: program ## Real SDKs, installed from their registries, against the real program
	DEADSTOP_BIN=target/debug/deadstop DEADSTOP_CALLS=$(abspath $(TARGET))/debug/examples/calls tests/clients/run

docs: program ## The book built, its links followed, and the code in it run, with real frameworks
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/docs/run

book: ## Build the book into target/book
	scripts/book

cast: program ## Record the README's animation anew
	scripts/cast docs/demo.svg -- $(TARGET)/debug/deadstop demo

# Those that take seconds here; `make hosts HOSTS=` and `make frameworks FRAMEWORKS=` have all, and DEADSTOP_NEWER=1
# takes the newest versions instead of the pinned ones.
HOSTS ?= claude codex gemini copilot pi
HOOKED ?= claude-code codex gemini
FRAMEWORKS ?= openai-agents pydantic-ai smolagents langgraph

hosts: program ## Real coding agents from npm with our hooks installed, and under run, against a stand-in provider
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/hosts/run $(HOOKED)
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/hosts/matrix $(HOSTS)

frameworks: program ## Real frameworks behind serve, looping, stopped and healthy, against a stand-in provider
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/frameworks/run $(FRAMEWORKS)

bench-hooks: page ## How long a hook's whole run takes, cold and warm
	$(CARGO) build --release --locked --package deadstop --bin deadstop --example hooks
	$(TARGET)/release/examples/hooks $(TARGET)/release/deadstop

sdk-python: program ## The Python package, tested in clean environments with real frameworks
	DEADSTOP_BIN=$(abspath $(TARGET))/debug/deadstop bindings/python/check --debug

sdk-node: program ## The Node package, tested in a clean folder with real clients
	DEADSTOP_BIN=$(abspath $(TARGET))/debug/deadstop bindings/node/check --debug

bench-sdk: ## What a guard costs in Python and in Node: guarded against bare in one run, and alone
	bindings/python/check bench
	bindings/node/check bench

mcp-clients: program ## The official MCP SDKs as clients and servers, and a public server, through both transports
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/mcp/run

telemetry: program ## Real readers and emitters of telemetry: JSON logs, Prometheus, OTLP's official classes, an OpenID provider, the AI SDK, LangChain, Claude Code
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/telemetry/run

# What takes seconds of it; Claude Code, Prometheus and the OpenID provider are in `make telemetry` and `make soak`.
emitters: program ## Real emitters of telemetry: the AI SDK and LangChain, whose loops are refused at another door; a trace through MCP; and the log
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/telemetry/run log emitters mcp

api: program ## The API against its own document, with cases made up by schemathesis
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/api/run

leaks: program ## Secrets on every way in, and a search for them in all that is kept or said
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/api/leaks

bombs: program ## Small bodies that unpack to large ones: how much memory each takes above the idle program
	DEADSTOP_BIN=$(TARGET)/debug/deadstop tests/api/bombs

faults: ## Redis killed or frozen, PostgreSQL restarted, a node killed, under load: what was let through, as a table
	$(CARGO) test --locked --package deadstop --test fleet fleet::faults -- --nocapture --test-threads=1 > $(TARGET)/faults; \
		status=$$?; grep '^fault: \|^test result' $(TARGET)/faults | sed 's/^fault: //'; exit $$status

packaging: ## Image, compose file, manifests and unit, as far as they can be checked without an engine
	deploy/check

bench-gateway: page ## Side by side with nginx and others, on loopback (needs nginx and wrk, and says so)
	$(CARGO) build --release --locked -p deadstop -p deadstop-server --bin deadstop --example standin --example load
	bench/gateway/run

bench-cluster: page ## One, two and three nodes: speed, round trips, one agent's budget, memory, kills
	$(CARGO) build --release --locked -p deadstop -p deadstop-server --bin deadstop --example standin --example load
	bench/cluster/run

compare: build ## The same commands, runs and scenes through us and through what can be installed beside us (needs Python 3.12 and Node)
	COMMANDS=$(abspath $(COMMANDS)) TRACES=$(abspath $(TRACES)) bench/compare/run $(COMPARE)

bench-telemetry: page ## Spans that the server takes in a second, and what a call costs more when it is exported
	$(CARGO) build --release --locked -p deadstop -p deadstop-server -p deadstop-otlp --bin deadstop \
		--example standin --example load --example spans
	bench/telemetry/run

bench-mcp: build ## What a tool call over MCP takes longer through us, on stdio and over HTTP
	bench/mcp/run

sim: ## Ten thousand seeds of the simulated fleet, and the scripts in Redis against their model
	DEADSTOP_SOAK=1 $(CARGO) test --release --locked --package deadstop-fleet

deny: ## Check licences, duplicates and sources of dependencies (installs cargo-deny if it is missing)
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check licenses bans sources

# Each says what it could not reach: no advisories found is not the same as none asked for.
advisories: ## Known vulnerabilities of crates and npm packages, where their databases can be reached
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	@$(CARGO) deny fetch db >/dev/null 2>&1 || { echo "advisories: RustSec's database cannot be reached; crates were NOT checked"; touch $(TARGET)/unreached; }
	@if [ -e $(TARGET)/unreached ]; then rm $(TARGET)/unreached; else $(CARGO) deny check advisories; fi
	@for folder in dashboard bindings/node tests/page; do \
		[ -f $$folder/package-lock.json ] || continue; \
		said=$$(cd $$folder && $(NPM) audit --omit=optional 2>&1); code=$$?; \
		if echo "$$said" | grep -q 'audit endpoint returned an error\|ENOTFOUND\|ECONN'; then \
			echo "advisories: npm's database cannot be reached; $$folder was NOT checked"; \
		else echo "$$folder: $$said"; [ $$code -eq 0 ] || exit $$code; fi; \
	done

sbom: ## List what the program is made of, as CycloneDX, in target/sbom
	scripts/sbom $(TARGET)/sbom/deadstop.cdx.json

soak: page ## The long tests: thousands of cases where `make test` runs hundreds
	DEADSTOP_SOAK=1 PROPTEST_CASES=5000 $(CARGO) test --release --workspace --locked
	$(CARGO) run --release --locked --package deadstop-process --example soak -- 200
	$(CARGO) run --release --locked --package deadstop-effect --example mutate -- 1000000
	$(CARGO) build --release --locked --package deadstop
	DEADSTOP_SOAK=1 DEADSTOP_BIN=$(TARGET)/release/deadstop tests/api/run
	DEADSTOP_SOAK=1 DEADSTOP_BIN=$(TARGET)/release/deadstop tests/api/leaks
	DEADSTOP_BIN=$(TARGET)/release/deadstop tests/hosts/run
	DEADSTOP_BIN=$(TARGET)/release/deadstop tests/hosts/matrix
	DEADSTOP_BIN=$(TARGET)/release/deadstop tests/frameworks/run
	DEADSTOP_SOAK=1 DEADSTOP_BIN=$(TARGET)/release/deadstop tests/clients/run chaos
	DEADSTOP_SOAK=1 $(CARGO) test --release --locked --package deadstop --test fleet a_thousand -- --nocapture
	DEADSTOP_BIN=$(TARGET)/release/deadstop tests/telemetry/run
	$(MAKE) differential

fuzz: ## Every parser of foreign input, FUZZ_SECONDS (60) each, from seeds and regressions in fuzz/
	scripts/fuzz

differential: ## 100,000 spoilt streams: no tool call that an official SDK sees and our reader misses
	$(CARGO) build --release --locked --package deadstop-protocol --example calls
	DEADSTOP_CALLS=$(abspath $(TARGET))/release/examples/calls DEADSTOP_STREAMS=$${DEADSTOP_STREAMS:-100000} \
		DEADSTOP_SEED=$${DEADSTOP_SEED:-$$(date +%s)} tests/clients/run streams

bench: page ## Measure what the project promises
	$(CARGO) build --release --locked --package xtask
	DEADSTOP_TRACES=$(TRACES) ./target/release/xtask bench

million: ## A million calls: size, cost of writing, time of reading, on SQLite and on PostgreSQL
	$(CARGO) build --release --locked --package deadstop-store --example million
	./target/release/examples/million
	scripts/postgres > target/postgres && \
		./target/release/examples/million "$$(tail -n 1 target/postgres)"; \
		status=$$?; scripts/postgres stop "$$(head -n 1 target/postgres)"; exit $$status

commands: ## Judge the strict preset on the labelled commands in COMMANDS, where they are
	@if [ -d "$(COMMANDS)" ]; then $(CARGO) xtask commands -v $(COMMANDS); \
	else echo "no labelled commands at $(COMMANDS): set COMMANDS to judge the reader on your own"; fi

traces: ## Judge the strict preset on the labelled traces in TRACES
	$(CARGO) xtask traces $(TRACES)

recorded: program
	@if [ -d "$(TRACES)" ]; then $(XTASK) traces $(TRACES); \
	else echo "no recorded traces at $(TRACES): set TRACES to judge the detectors on your own"; fi

mutants-reader: ## See whether tests notice faults in the severity table and the reader of commands: all faults in one build, minutes
	$(CARGO) run --release --locked --manifest-path mutants/Cargo.toml --target-dir $(TARGET)/mutants/tool -- $(MUTANTS)

mutants: mutants-reader ## See whether tests notice faults put in on purpose, in the reader and in all of core (installs cargo-mutants)
	@command -v cargo-mutants >/dev/null || $(CARGO) install --locked cargo-mutants
	PROPTEST_CASES=16 $(CARGO) mutants --package deadstop-core --jobs 2 --timeout 60

flipped: ## Flip each default of the guards' settings, one after the other, and see whether a test fails
	CARGO_TARGET_DIR=$(abspath $(TARGET))/flipped scripts/flip-defaults

clean: ## Remove what was built
	$(CARGO) clean
