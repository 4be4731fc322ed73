# `make setup` builds .venv once; every other target calls it, but `peers`, `docs` and `test-mlflow`: their
# environments are their own.

VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEERS  := .venv-peers
DOCS   := .venv-docs
MLFLOW := .venv-mlflow

.PHONY: help setup demo test check lint types wheel docs test-mlflow fuzz bench peers clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

setup: $(READY)  ## Create .venv with pinned versions (once)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else f"the pinned versions need Python 3.11 or newer, {v[0]}.{v[1]} found; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[experiments,dev]"
	@touch $(READY)

demo: setup  ## The model beside the best possible one; a small panel from table to report page
	$(BIN)/smct demo --out demo

test: setup  ## Run all tests (slow ones too)
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: setup
	$(BIN)/mypy

check: lint types test  ## What CI runs

wheel: setup  ## Build dist/: a wheel with compiled kernels for this platform, and the source distribution
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	@ls dist/*-py3-none-*_x86_64.whl > /dev/null 2>&1 || echo "no kernels in the wheel: they will be compiled on first use"

docs: $(DOCS)/.ready  ## Build the documentation site into site/, in an environment of its own; a warning is an error
	$(DOCS)/bin/zensical build --clean --strict

$(DOCS)/.ready: requirements-docs.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

test-mlflow: $(MLFLOW)/.ready  ## Run the tests that need MLflow, in an environment of its own
	$(MLFLOW)/bin/python -m pytest tests/adapters/test_mlflow.py

$(MLFLOW)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(MLFLOW)
	$(MLFLOW)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[experiments,dev,mlflow]"
	@touch $@

fuzz: setup  ## Try hostile input for some minutes (FUZZ=60 for an hour): crashes, hangs, foreign errors
	$(BIN)/python tests/hostile/fuzz.py --minutes $(or $(FUZZ),10)

bench: setup  ## Measure speed (writes benchmarks/results.json)
	$(BIN)/python -m benchmarks

peers: $(PEERS)/.ready  ## Create .venv-peers with AutoETS and NHITS, for benchmarks/panels

$(PEERS)/.ready: benchmarks/panels/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' $<)"
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

clean:  ## Remove the environment and caches
	rm -rf $(VENV) $(PEERS) $(DOCS) $(MLFLOW) site .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
