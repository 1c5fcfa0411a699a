# Development commands. `make` without a target lists them.
.DEFAULT_GOAL := help
.PHONY: help setup installed demo unit test coverage mutate check prove bench lab docs clean generate web lock packages

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Only root can run a real node, so only root needs its binaries.
REAL_NODE := $(if $(filter 0,$(shell id -u)),--real-node)
# Each worker starts its own control plane, and often waits for it: four keep two cores busy.
WORKERS ?= 4
# Tests of a file share what its fixtures start; the longest files come first (tests/conftest.py).
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Without bytecode, each of the hundreds of processes that the tests start needs three times the CPU to start.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/build/pycache

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: installed ## Install all dependencies; creates .venv/bin/croupier
	@echo "Installed. Next: make demo, or: export PATH=$(CURDIR)/$(BIN):\$$PATH; croupier --help"

installed: $(STAMP) packages

demo: installed ## Start a cluster with simulated GPU nodes and show what Croupier does
	$(BIN)/croupier demo

unit: $(STAMP) ## Run the tests that need no Kubernetes: two thirds of all
	$(BIN)/pytest --unit -n auto -q

test: installed ## Run all tests on a real Kubernetes (the first run builds it in about ten minutes)
	$(BIN)/croupier lab build $(REAL_NODE) --helm
	$(BIN)/pytest $(PARALLEL)

coverage: installed ## Run all tests and print coverage with the ten least covered files (TESTS=--unit for some)
	@mkdir -p build/coverage
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest $(PARALLEL) -q $(TESTS)
	$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --sort=cover | awk 'NR <= 12 || /^TOTAL/'

mutate: $(STAMP) ## Run mutation tests of one part of core: make mutate PART=ledger (SAMPLE=all for all mutants)
	$(BIN)/python -m tools.mutate $(PART) --sample $(or $(SAMPLE),150)

check: $(STAMP) ## Check linters, types, layers and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.generate_crds --check
	$(BIN)/python -m tools.kubelet_messages --check
	$(BIN)/python -m tools.chart --check
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m tools.web --check

prove: installed ## Run the proof tests at full size: nothing is overcommitted, lost or leaked (docs/proof.md)
	$(BIN)/croupier lab build $(REAL_NODE)
	$(BIN)/pytest tests/proof tests/hostile tests/fuzz tests/ui/browser --prove-full

bench: installed ## Run the benchmarks; prints a table and writes bench/results/latest.json
	$(BIN)/croupier lab build
	$(BIN)/python -m bench

lab: installed ## Start a lab with four simulated nodes of eight H100; runs until Ctrl-C
	$(BIN)/croupier lab up --nodes 4 --gpus H100:8

docs: $(STAMP) ## Build the documentation site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet -d build/site
	@echo "The site is in build/site; open build/site/index.html."

generate: $(STAMP) ## Write the generated files (CRDs, protobuf messages, chart, reference)
	$(BIN)/python -m tools.generate_crds
	$(BIN)/python -m tools.kubelet_messages
	$(BIN)/python -m tools.chart
	$(BIN)/python -m tools.reference

web: $(STAMP) ## Build the page of `croupier ui` (needs Node; the result is checked in)
	$(BIN)/python -m tools.web

lock: $(STAMP) ## Resolve the dependencies into requirements.lock
	$(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --extra dev \
		--no-header --no-emit-index-url --upgrade --quiet pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --constraints requirements.lock \
		--no-header --no-emit-index-url --quiet pyproject.toml -o image/requirements.lock

packages: ## Install the Debian packages of a real node (as root; otherwise lists them)
	@sh scripts/debian-packages.sh

clean: ## Remove build outputs (to remove built binaries: croupier lab clean-cache)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist bench/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml packaging/croupier-lab/pyproject.toml
	@echo "Installing about 100 Python packages into $(VENV); this takes one to two minutes."
	$(PYTHON) -m venv $(VENV)
	@{ $(BIN)/pip install --progress-bar off --require-hashes -r requirements.lock || echo "pip failed"; } | awk '\
		/^Collecting/ {n++; printf "  package %d: %s\n", n, $$2; fflush()} \
		/^Installing collected/ {print "  unpacking all of them"; fflush()} \
		/^pip failed/ {failed = 1} END {exit failed}'
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation -e . -e packaging/croupier-lab
	@touch $@
