# Everything that a fresh machine needs, a target each; `make` alone explains them.
# Needs Python 3.11 or newer with venv. Nothing is installed outside .venv.

PYTHON ?= python3
VENV ?= .venv
# More arguments for pip, for example an index with CPU builds of torch:
#   make demo PIP_ARGS="--extra-index-url <PyTorch's CPU index>"
PIP_ARGS ?=
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_ARGS)
# One thread for linear algebra in each process: tests and clients run side by side.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
export MKL_NUM_THREADS = 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types contracts migrations wheel bench bench-peers faults experiments docs constraints clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(VENV)/.demo ## Real clients learn through a real server; results in results/demo.
	$(RUN)/dag-acfl demo

test: $(VENV)/.dev ## All tests, on SQLite and PostgreSQL.
	$(RUN)/python -m pytest -n 2 --dist loadgroup

lint: $(VENV)/.dev ## ruff: rules and format.
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

format: $(VENV)/.dev ## Let ruff format and mend what it can.
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

types: $(VENV)/.dev ## mypy --strict over the packages.
	$(RUN)/mypy

contracts: $(VENV)/.dev ## import-linter: who may import whom.
	$(RUN)/lint-imports

migrations: $(VENV)/.dev ## The tables and the migrations agree.
	$(RUN)/python -m ledger_server.store check

wheel: $(VENV)/.dev ## Build the wheel and try it in a bare environment.
	rm -rf dist
	$(RUN)/python -m build --wheel --outdir dist .
	bash .ci/check-wheel

bench: $(VENV)/.dev ## All benchmarks; figures go to benchmarks/results.
	$(RUN)/python -m benchmarks.run_all

bench-peers: $(VENV)/.dev ## Only the comparison with Flower, which gets an environment of its own.
	$(RUN)/python -m benchmarks.service_round

faults: $(VENV)/.dev ## The long fault tests: 100 crash points under 4 writers.
	DAG_ACFL_FAULT_POINTS=100 DAG_ACFL_FAULT_RESULTS=benchmarks/results/kill.json \
	$(RUN)/python -m pytest -q tests/faults

experiments: $(VENV)/.demo ## The demo over three seeds; figures go to experiments/demo.
	$(RUN)/python -m experiments.demo.run

docs: $(VENV)/.dev ## Regenerate the generated parts of docs.
	$(RUN)/python -m tests.docs.generate

constraints: $(VENV)/.dev ## Pin what is installed now.
	$(RUN)/python -m tests.docs.constraints

clean: ## Remove environments, caches and build results; ledgers and results stay.
	rm -rf $(VENV) .venv-peers dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# torch first and pinned, so that nothing draws another build of it.
$(VENV)/.demo: $(VENV)/.base pyproject.toml constraints.txt
	@echo "installing torch (a few minutes on a slow line)"
	@$(PIP) torch
	@echo "installing dag-acfl and what the demo needs"
	@$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "installing what tests and checks need"
	@$(PIP) --editable '.[dev]'
	@touch $@
