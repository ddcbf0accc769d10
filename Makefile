# make demo | test | bench | soak | lint | wheel | clean
#
#   make test PYTHON=python3.13      another interpreter
#   make test VENV=/tmp/fresh        another virtual environment
#
# The virtual environment is made when it is missing and set up again when pyproject.toml has changed.

PYTHON ?= python3
VENV   ?= .venv
DIST   ?= dist

BIN := $(VENV)/bin

# The virtual environment's own python and tools are asked for by path; nothing needs to be activated.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test bench soak lint wheel clean

help:
	@echo "make demo    a short tour of the scratch command"
	@echo "make test    the tests"
	@echo "make bench   the benchmarks, about 5 minutes; with peers after $(BIN)/pip install -e '.[peers]'"
	@echo "make soak    the load and the crashes at full length; SOAK_SEED=n repeats a run"
	@echo "make lint    ruff, mypy, pyright and the layers"
	@echo "make wheel   the sdist, and the wheel from it, in $(DIST)/"
	@echo "make clean   remove what the above have made"

demo: $(VENV)/.installed
	$(BIN)/scratch demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

bench: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/benchmarks -m benchmark -s -q

soak: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/soak -m soak -s

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

# `build` makes the wheel from the unpacked sdist, which is how a file that the sdist lacks comes to light.
wheel: $(VENV)/.installed-dev
	rm -f $(DIST)/run_scratch-*
	$(BIN)/python -m build --outdir $(DIST)
	$(BIN)/check-wheel-contents --package scratch $(DIST)/run_scratch-*.whl

clean:
	rm -rf .venv dist .coverage htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find scratch cli sweeper tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing run-scratch in $(VENV) ..."
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "Installing run-scratch and the development tools in $(VENV) ..."
	@$(PIP) install --editable '.[dev]'
	@touch $(VENV)/.installed $@

# Debian's python3 comes without ensurepip, and then `python3 -m venv` leaves half an environment behind:
# look first.
$(BIN)/python:
	@if ! $(PYTHON) -c '' 2>/dev/null; then \
	    echo "There is no '$(PYTHON)' here. Install Python 3.11 or newer (on Debian: apt-get install python3 python3-venv)," >&2; \
	    echo "or name an interpreter: make PYTHON=/path/to/python3" >&2; exit 1; \
	elif ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	    echo "run-scratch needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
	    echo "Name another one: make PYTHON=/path/to/python3" >&2; exit 1; \
	elif $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	    $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -m virtualenv --version >/dev/null 2>&1; then \
	    $(PYTHON) -m virtualenv --quiet $(VENV); \
	elif command -v uv >/dev/null 2>&1; then \
	    uv venv --quiet --seed --allow-existing --python "$$(command -v $(PYTHON))" $(VENV); \
	else \
	    echo "Python cannot make a virtual environment here: its venv module is not installed." >&2; \
	    echo "On Debian and Ubuntu:  apt-get install python3-venv   (as root), then run make again." >&2; exit 1; \
	fi
