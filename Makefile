# Everything a person does here, one word each. `make` alone prints this list.
.DEFAULT_GOAL := help
.PHONY: help setup demo test check prove bench lab clean generate lock packages

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Only root can run a real node, so only root needs its programs.
REAL_NODE := $(if $(filter 0,$(shell id -u)),--real-node)
# Each worker raises a control plane of its own. Tests wait a third of the time: on two cores three are quicker.
WORKERS ?= 2

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) packages ## Install what everything needs; leaves .venv/bin/croupier

demo: setup ## Raise a cluster with simulated GPU nodes and show our kinds in it
	$(BIN)/croupier demo

test: setup ## Run every test on a real Kubernetes (the first run builds it: about ten minutes)
	$(BIN)/croupier lab build $(REAL_NODE) --helm
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

check: $(STAMP) ## Lint, types, layers, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m croupier.api.generate --check
	$(BIN)/python -m croupier.node.proto.generate --check
	$(BIN)/python -m croupier.wiring.chart --check
	$(BIN)/python -m croupier.cli.reference --check

prove: setup ## Prove at full size that nothing is overcommitted, lost or leaked (docs/proof.md)
	$(BIN)/croupier lab build $(REAL_NODE)
	$(BIN)/pytest tests/proof --prove-full

bench: setup ## Measure; prints a table and writes bench/results/latest.json
	$(BIN)/croupier lab build
	$(BIN)/python -m bench

lab: setup ## Raise a lab with four simulated nodes of eight H100 and stay until Ctrl-C
	$(BIN)/croupier lab up --nodes 4 --gpus H100:8

generate: $(STAMP) ## Write the generated files again (CRDs, the kubelet's messages, the chart, the reference)
	$(BIN)/python -m croupier.api.generate
	$(BIN)/python -m croupier.node.proto.generate
	$(BIN)/python -m croupier.wiring.chart
	$(BIN)/python -m croupier.cli.reference

lock: $(STAMP) ## Resolve the dependencies again into requirements.lock
	$(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --extra dev \
		--no-header --no-emit-index-url --upgrade --quiet pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --constraints requirements.lock \
		--no-header --no-emit-index-url --quiet pyproject.toml -o image/requirements.lock

packages: ## Install the Debian packages of a real node (as root; others are told)
	@sh scripts/debian-packages.sh

clean: ## Remove what was made here (the cache of built programs stays: croupier lab clean-cache)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist bench/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@
