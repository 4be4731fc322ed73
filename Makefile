# `make setup` builds .venv once; every other target calls it, but `peers`, whose environment is its own.

VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEERS  := .venv-peers
ENGINES := .venv-engines

.PHONY: help setup demo test test-engines check lint types fuzz bench peers clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

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

test-engines: $(ENGINES)/.ready  ## Run the tests of Spark, Dask and Ray, which need Java 17 and .venv-engines
	timeout 900 $(ENGINES)/bin/python -m pytest tests/engines

$(ENGINES)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[forecaster,parquet,dev]"
	@for engine in spark dask ray; do \
	  $(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[$$engine]" \
	    || echo "$$engine does not install here: its tests are skipped"; \
	done
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: setup
	$(BIN)/mypy

check: lint types test  ## What CI runs

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
	rm -rf $(VENV) $(PEERS) $(ENGINES) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
