# Everything starts here: each target sets the environment up by itself. Needs make, a C compiler, Python >= 3.11.
PYTHON ?= python3
CORES ?= all
BIN := .venv/bin
SMOKE := $(BIN)/python -m snakemake --workflow-profile workflow/profiles/local --cores $(CORES) --config experiment=smoke

OLDER_TRITON := .venv/triton-3.6.0
AT_ONCE := tests/unit tests/property tests/ops tests/workflow # --ignore would not apply to pytest's testpaths
TIMED := tests/distributed/test_stage_ends.py tests/distributed/test_timing_session.py # need the cores for themselves

.DEFAULT_GOAL := help
.PHONY: help setup smoke test gpu kernels kernels-interpreted kernels-3.7.1 kernels-3.6.0
.PHONY: test-browser test-lab lab lab-down lab-programs lint clean

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

setup: ## Make .venv (PYTHON=python3.12 to choose one, BUILD=cpu|cuda|cuda126 to choose torch's build)
	@$(PYTHON) requirements/install.py

smoke: setup ## Every method on a small model, end to end: results/smoke/
	$(SMOKE)

test: setup $(if $(filter Linux,$(shell uname)),kernels) ## The test suite; on Linux with `make kernels`
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --dist loadfile $(AT_ONCE)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile tests/distributed $(TIMED:%=--ignore=%) # several processes each
	$(BIN)/python -m pytest $(TIMED)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile tests/dry

gpu: setup ## What a GPU is needed for, at one go (an hour), published: kernel tests, timings, a training of every method
	.ci/gpu

kernels: setup $(OLDER_TRITON) ## Triton's kernels without a GPU: interpreted, and compiled for several by two versions
	$(MAKE) --no-print-directory --jobs 2 --output-sync kernels-interpreted kernels-3.7.1 kernels-3.6.0

kernels-interpreted:
	TRITON_INTERPRET=1 $(BIN)/python -m pytest tests/ops

kernels-3.7.1:
	KERNEL_TABLE=results/kernels/triton-3.7.1.csv $(BIN)/python -m pytest tests/compiled

kernels-3.6.0:
	KERNEL_TABLE=results/kernels/triton-3.6.0.csv PYTHONPATH=$(OLDER_TRITON) $(BIN)/python -m pytest tests/compiled

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
