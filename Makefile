# `make setup` builds .venv once; every other target calls it, but those whose environment is their own.

VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEERS  := .venv-peers
GLUONTS := .venv-gluonts
LOWEST := .venv-lowest
# An adapter's own tests must end: a check that hangs is a failure.
LIMIT  := timeout 1800

.PHONY: help setup demo test test-sktime test-gluonts test-lowest check lint types fuzz bench peers clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## Create .venv with pinned versions (once)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else f"the pinned versions need Python 3.11 or newer, {v[0]}.{v[1]} found; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[experiments,dev,sktime]"
	@touch $(READY)

demo: setup  ## The model beside the best possible one; a small panel from table to report page
	$(BIN)/smct demo --out demo

test: setup  ## Run all tests (slow ones too)
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --ignore tests/adapters/sktime --ignore tests/adapters/gluonts

test-sktime: setup  ## Run sktime's own checks, and ours, on the forecaster of sktime
	$(LIMIT) $(BIN)/python -m pytest --numprocesses 2 --dist worksteal tests/adapters/sktime

test-gluonts: $(GLUONTS)/.ready  ## The same for GluonTS, in an environment of its own: it needs an older pandas
	$(LIMIT) $(GLUONTS)/bin/python -m pytest --numprocesses 2 --dist worksteal tests/adapters/gluonts

test-lowest: $(LOWEST)/.ready  ## Read and forecast tables with the oldest pandas, polars and pyarrow that are allowed
	$(LIMIT) $(LOWEST)/bin/python -m pytest --numprocesses 2 --dist worksteal $(LOWEST_TESTS)

LOWEST_TESTS := $(addprefix tests/forecaster/test_,periods.py names.py steps.py follow.py frequency.py \
	forecaster_tables.py forecaster_foreign_tables.py forecaster_saving.py)

$(GLUONTS)/.ready: pyproject.toml tests/adapters/gluonts/requirements.txt
	$(PYTHON) -m venv $(GLUONTS)
	$(GLUONTS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/adapters/gluonts/requirements.txt
	$(GLUONTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(LOWEST)/.ready: pyproject.toml tests/lowest_requirements.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/lowest_requirements.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
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
	rm -rf $(VENV) $(PEERS) $(GLUONTS) $(LOWEST) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
