# `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help setup serve test lint bench bench-peers soak fuzz

# libgomp's threads sleep when idle instead of spinning.
export OMP_WAIT_POLICY ?= passive
CARGO ?= cargo
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 600

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | sort | awk -F '\t' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: ## Install the native parts into .native
	@scripts/setup.sh onnxruntime libtorch grpcurl buf promtool stockfish ethereal

serve: ## Run the server on the embedded model (ARGS="--listen 127.0.0.1:50051 ...")
	@scripts/setup.sh onnxruntime grpcurl
	$(CARGO) run --release --bin zeitnot -- serve $(ARGS)

test: setup ## Run all tests
	.native/bin/buf lint proto
	$(CARGO) test --release --workspace

lint: setup ## Check format, lints and documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --workspace --no-deps
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --offline check bans licenses sources; \
	else echo "lint: cargo-deny is not installed, its checks are skipped"; fi

bench: setup ## Run the benchmarks; docs/benchmarks.md
	$(CARGO) bench --profile release -p zeitnot-trainer
	$(CARGO) bench --profile release -p zeitnot-server --bench saturation --bench replay --bench rerank --bench neighbours
	scripts/benchmarks.py

bench-peers: setup ## Measure the server beside its peers; docs/benchmarks.md
	scripts/peers/bench.sh
	scripts/benchmarks.py

soak: setup ## Ten minutes of load with reloads, cancellations and killed engines (SOAK_SECONDS=600)
	SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test --release -p zeitnot-server --test soak -- --nocapture

fuzz: setup ## Fuzz every parser that faces the outside (FUZZ_SECONDS=60 each)
	scripts/fuzz.sh $(FUZZ_SECONDS)
