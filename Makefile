# Every target sets up what it needs in $(VENV); a second call finds it done.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
# Tried by test-all; one that is missing or does not run is named and skipped.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
# Other versions of PostgreSQL that test-all runs its tests on: folders with their programs.
POSTGRESES ?= $(wildcard /usr/lib/postgresql/*/bin)

BIN := $(VENV)/bin
PY  := $(BIN)/python
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help setup setup-full demo check test test-all soak bench generate format clean runtime dev pytest

help: ## list the targets
	@echo "make TARGET [PYTHON=python3.12] [VENV=.venv] [ARGS=...]"
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' Makefile | \
		while IFS='	' read -r target text; do printf '  %-10s %s\n' "$$target" "$$text"; done

setup: dev ## prepare the virtual environment for development

setup-full: dev ## also what some tests use: PgBouncer (Debian, as root)
	@sh tools/setup_full.sh

runtime:
	@sh tools/setup.sh "$(PYTHON)" "$(VENV)" runtime

dev:
	@sh tools/setup.sh "$(PYTHON)" "$(VENV)" dev

demo: runtime ## see it work: runs `tenure demo`
	@$(BIN)/tenure demo $(ARGS)

check: dev ## format, lint, types, layers, generated files, sizes
	@$(PY) tools/check.py

test: check ## all checks, then the test suite (ARGS for pytest)
	@$(PY) -m pytest $(ARGS)

pytest: dev ## the test suite alone
	@$(PY) -m pytest $(ARGS)

test-all: ## the test suite on every Python >= 3.11 and PostgreSQL found here
	@PYTHONS="$(PYTHONS)" POSTGRESES="$(POSTGRESES)" MAKE="$(MAKE)" sh tools/test_all.sh $(ARGS)

soak: dev ## the same tests with larger numbers (takes long)
	@TENURE_SOAK=1 $(PY) -m pytest --timeout=3600 $(ARGS)

bench: dev ## measure, beside the raw engine and peers (about 3 minutes)
	@$(PY) -m benchmarks $(ARGS)

generate: dev ## refresh generated files
	@$(PY) tools/generate.py

format: dev ## format, and fix what can be fixed
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

clean: ## remove environments, caches and build results
	@rm -rf .venv .venv-3.* .venv-peers .venv*.lock build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
