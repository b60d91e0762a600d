# All targets work on a fresh machine with Python 3.11 or newer: each installs what it needs into .venv, once, and again
# only when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Stamps: what has been installed into $(VENV).
BASE := $(VENV)/.installed-base
AGENTS := $(VENV)/.installed-agents
DOCS := $(VENV)/.installed-docs
DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help install install-dev quickstart test test-long test-gpu lint ruff format docs bench clean

help:  ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

quickstart: $(AGENTS)  ## train an agent from scratch, evaluate it and film it: a few minutes on two cores
	$(BIN)/babyai quickstart

test: ruff  ## ruff, then the default test suite
	$(PYTEST)

# Tests marked `long` may be none, which pytest reports as exit status 5.
test-long: install-dev  ## long tests, then the suite with bounds checks, then without the compiler
	HYPOTHESIS_PROFILE=long $(PYTEST) -m long || [ $$? -eq 5 ]
	NUMBA_BOUNDSCHECK=1 $(PYTEST) -m "not long and not downstream"
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m "not long and not downstream and not compiled"

test-gpu: install-dev  ## tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

lint: ruff  ## ruff, pyright and the import order of the packages
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

ruff: install-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: install-dev  ## format the sources with ruff
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# -W: a warning, such as a broken link, is an error.
docs: $(DOCS)  ## the documentation as a site with search, in build/site
	$(BIN)/python -m sphinx -W --keep-going --quiet docs build/site
	@echo "open build/site/index.html"

bench: install-dev  ## benchmark babyai and its peers in one run
	$(BIN)/python -m benchmarks.world

install: $(BASE)  ## the base package, editable, in .venv

install-dev: $(DEV)  ## the package with its development dependencies

clean:  ## remove .venv, caches and builds
	rm -rf $(VENV) build dist docs/levels docs/reference .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
	[ ! -d benchmarks ] || find benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(BASE): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) --editable .
	@touch $@

$(AGENTS): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) --editable '.[agents]'
	@touch $(BASE) $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) --editable '.[docs]'
	@touch $(BASE) $(AGENTS) $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) --editable '.[dev]'
	@touch $(BASE) $(AGENTS) $(DOCS) $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "babyai needs Python 3.11 or newer: install one and name it, as in 'make PYTHON=python3.12 test'"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot create virtual environments: install its venv module (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
