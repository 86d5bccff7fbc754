# Everything starts here: each target sets the environment up by itself. Needs make, a C compiler, Python >= 3.11.
PYTHON ?= python3
CORES ?= all
BIN := .venv/bin
EXPERIMENT ?= smoke
SMOKE = $(BIN)/python -m snakemake --workflow-profile workflow/profiles/local --cores $(CORES)

# Snakemake keeps the workflow's source in a cache below HOME, and ends where it cannot.
ifeq ($(shell test -w "$$HOME" && echo yes),)
export XDG_CACHE_HOME ?= $(CURDIR)/.snakemake/cache
endif

OLDER_TRITON := .venv/triton-3.6.0
PYTEST = $(BIN)/python -m pytest --durations 40 --durations-min 1
# Files in this order, so that a worker does not end with the longest one.
AT_ONCE = OMP_NUM_THREADS=1 $(PYTEST) --numprocesses logical --dist loadfile --no-loadscope-reorder
WHOLE = tests/workflow tests/unit tests/property tests/ops
SEVERAL = $(PYTEST) --numprocesses 2 --dist loadfile # several processes each
TIMED := tests/distributed/test_stage_ends.py tests/distributed/test_timing_session.py # need the cores for themselves

.DEFAULT_GOAL := help
.PHONY: help setup smoke check check-tests test test-all test-rest test-dry test-browser test-lab gpu
.PHONY: kernels kernels-interpreted kernels-3.7.1 kernels-3.6.0 lab lab-down lab-programs lint clean

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

setup: ## Make .venv (PYTHON=python3.12 to choose one, BUILD=cpu|cuda|cuda126 to choose torch's build)
	@$(PYTHON) requirements/install.py

smoke: setup ## Five methods on a tiny model, end to end: results/smoke/; eight minutes (EXPERIMENT=smoke-short: two methods, two minutes)
	$(SMOKE) --config experiment=$(EXPERIMENT)

check: setup ## While you write: style, types, unit tests, a case of each mechanism; three minutes
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint check-tests

check-tests:
	$(AT_ONCE) tests/unit tests/property --tier check

test: setup ## What every change has to pass; a quarter of an hour
	$(AT_ONCE) $(WHOLE) --tier test
	$(SEVERAL) tests/distributed $(TIMED:%=--ignore=%) --tier test
	$(PYTEST) $(TIMED) --tier test

test-all: test test-rest test-dry test-browser $(if $(filter Linux,$(shell uname)),kernels) $(if $(filter 0,$(shell id -u)),test-lab) ## Every test there is; an hour
	$(MAKE) --no-print-directory smoke

test-rest: setup ## Of those files all cases that `make test` leaves out
	$(AT_ONCE) $(WHOLE) --tier rest
	$(SEVERAL) tests/distributed $(TIMED:%=--ignore=%) --tier rest
	$(PYTEST) $(TIMED) --tier rest

test-dry: setup ## Every method on its way over GPUs that are not there
	$(SEVERAL) tests/dry

gpu: setup ## What a GPU is needed for, the most valuable first (MINUTES=12; else all, an hour); goes on the next time
	.ci/gpu

kernels: setup $(OLDER_TRITON) ## Triton's kernels without a GPU: interpreted, and compiled for several by two versions
	$(MAKE) --no-print-directory --jobs 2 --output-sync kernels-interpreted kernels-3.7.1 kernels-3.6.0

kernels-interpreted:
	TRITON_INTERPRET=1 $(BIN)/python -m pytest tests/ops

kernels-3.7.1:
	$(BIN)/python -m pytest tests/compiled

kernels-3.6.0:
	PYTHONPATH=$(OLDER_TRITON) $(BIN)/python -m pytest tests/compiled

$(OLDER_TRITON): | setup
	rm -rf $@.part
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@.part triton==3.6.0
	mv $@.part $@

test-browser: setup ## The page of what is published, in the system's Chromium, with the network off
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/pinned.txt -e .[browser]
	$(BIN)/python -m pytest tests/browser

test-lab: setup lab-programs ## Tests on a real SLURM cluster on this machine (root on Debian or Ubuntu; QUICK=1: some)
	$(BIN)/python -m pytest tests/lab $(if $(QUICK),-m "not slow")

lab: setup lab-programs ## Start a SLURM cluster of four nodes on this machine (root on Debian or Ubuntu)
	$(BIN)/edgc lab up

lab-down: ## End it; it leaves nothing but the packages slurm-wlm and munge
	$(BIN)/edgc lab down

lab-programs:
	@for program in slurmctld slurmd munged ip tc; do command -v $$program >/dev/null || missing=$$program; done; \
	[ -z "$$missing" ] || { install="apt-get install --yes --no-install-recommends slurm-wlm munge iproute2"; \
	  $$install || { apt-get update && $$install; }; }

lint: setup ## Style, types, layers and workflow
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python .ci/lint_workflow.py --config experiment=smoke

clean: ## Remove .venv and the tools' caches; results stay
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
