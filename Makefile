# `make setup` builds .venv once; every other target calls it, but those whose environment is their own.

VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEERS  := .venv-peers
ENGINES := .venv-engines
GLUONTS := .venv-gluonts
LOWEST := .venv-lowest
DOCS   := .venv-docs
MLFLOW := .venv-mlflow
# An adapter's own tests must end: a check that hangs is a failure.
LIMIT  := timeout 1800

.PHONY: help setup demo test test-sktime test-gluonts test-lowest test-engines test-mlflow test-wheel check lint types wheel docs \
	fuzz kills faults malformed sanitize bench peers clean

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
	$(LIMIT) $(GLUONTS)/bin/python -m pytest --numprocesses 2 --dist worksteal tests/adapters/gluonts tests/test_other_libraries.py::test_the_part_of_gluonts_runs

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

# One engine at a time, each with a limit of its own: beside each other they starve on two cores. All are tried. A machine
# with other work needs more: SECONDS_A_TEST=900 make test-engines SECONDS_EACH=3000.
test-engines: $(ENGINES)/.ready  ## Run the tests of Spark (needs Java 17), Dask, Ray and Bytewax, in an environment of their own
	@failed=; for tests in spark dask ray "not (spark or dask or ray)"; do \
	  echo "== tests of engines: $$tests"; \
	  timeout --kill-after 30 $(or $(SECONDS_EACH),600) $(ENGINES)/bin/python -m pytest --durations 5 -k "$$tests" tests/engines \
	    || failed="$$failed [$$tests]"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

$(ENGINES)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[forecaster,parquet,dev]"
	@for engine in --editable=.[spark] --editable=.[dask] --editable=.[ray] protobuf bytewax; do \
	  $(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$$engine" \
	    || echo "$$engine does not install here: its tests are skipped"; \
	done
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: setup
	$(BIN)/mypy

check: lint types test  ## What CI runs first (.ci/run has the rest)

wheel: setup  ## Build dist/: a wheel with compiled kernels for this platform, and the source distribution
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	@ls dist/*-py3-none-*_x86_64.whl > /dev/null 2>&1 || echo "no kernels in the wheel: they will be compiled on first use"

test-wheel: wheel  ## Install that wheel into an empty environment without a compiler, and run the demo there
	PYTHON=$(PYTHON) COMPILED=$(BIN)/python $(LIMIT) tests/wheel/run dist

docs: $(DOCS)/.ready  ## Build the documentation site into site/, in an environment of its own; a warning is an error
	$(DOCS)/bin/zensical build --clean --strict

$(DOCS)/.ready: requirements-docs.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

test-mlflow: $(MLFLOW)/.ready  ## Run the tests that need MLflow, in an environment of its own
	$(LIMIT) $(MLFLOW)/bin/python -m pytest tests/adapters/test_mlflow.py

$(MLFLOW)/.ready: pyproject.toml tests/adapters/mlflow_requirements.txt
	$(PYTHON) -m venv $(MLFLOW)
	$(MLFLOW)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/adapters/mlflow_requirements.txt
	$(MLFLOW)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

fuzz: setup  ## Try hostile input for some minutes (FUZZ=60 for an hour): crashes, hangs, foreign errors
	$(BIN)/python tests/hostile/fuzz.py --minutes $(or $(FUZZ),10)

kills: setup  ## Kill fit, save, update, stream and the server at random moments (KILLS=50 of each)
	$(BIN)/python tests/hostile/kills.py --kills $(or $(KILLS),10)
	$(BIN)/python tests/hostile/server_kills.py --kills $(or $(KILLS),10)

faults: setup  ## Let the disk fail at every operation of fit, save, update and stream in turn
	$(BIN)/python tests/hostile/faults.py

malformed: setup  ## Send malformed requests to the server (REQUESTS=10000)
	$(BIN)/python tests/hostile/malformed.py --requests $(or $(REQUESTS),1000)

sanitize: setup  ## The kernels without warnings, and under AddressSanitizer and UBSan (TOOL=valgrind: under valgrind)
	PYTHON=$(BIN)/python tests/sanitize/run $(or $(TOOL),address) $(ARGUMENTS)

bench: setup  ## Measure speed (writes benchmarks/results.json)
	$(BIN)/python -m benchmarks

peers: $(PEERS)/.ready  ## Create .venv-peers with AutoETS and NHITS, for benchmarks/panels

$(PEERS)/.ready: benchmarks/panels/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' $<)"
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .venv-* site .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
