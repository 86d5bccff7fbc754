# Everything starts here: each target sets the environment up by itself. Needs make, a C compiler, Python >= 3.11.
PYTHON ?= python3
CORES ?= all
BIN := .venv/bin
SMOKE := $(BIN)/python -m snakemake --workflow-profile workflow/profiles/local --cores $(CORES) --config experiment=smoke

.DEFAULT_GOAL := help
.PHONY: help setup smoke test lint clean

help: ## This list
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile

setup: ## Make .venv (PYTHON=python3.12 to choose one, BUILD=cpu|cuda to choose torch's build)
	@$(PYTHON) requirements/install.py

smoke: setup ## Every method on a small model, end to end: results/smoke/
	$(SMOKE)

test: setup ## The test suite
	$(BIN)/python -m pytest

lint: setup ## Style, types, layers, workflow, and that the JSON schemas are in sync
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python .ci/lint_workflow.py --config experiment=smoke
	$(BIN)/python -m edgc schema --check

clean: ## Remove .venv and the tools' caches; results stay
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
