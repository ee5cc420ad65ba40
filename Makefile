# Everything a newcomer needs. Each target sets up .venv by itself, with pip and the pinned constraints.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEMO ?= demo

FUZZ_SECONDS ?= 60

.PHONY: help demo test test-peers test-oldest test-all check audit-deps fuzz bench docs clean
help:  ## show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.venv/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) --editable .
	touch $@

.venv/dev: .venv/core
	$(INSTALL) --editable '.[dev]'
	touch $@

.venv/all: .venv/dev
	$(INSTALL) --editable '.[dev,docs,ray,tensorboard,wandb,mlflow,lightning,hf,query,parquet,remote,peers]'
	# BioTorch by itself: one of its dependencies asks for a requests of 2021.
	$(INSTALL) --no-deps biotorch
	touch $@

.venv/docs: .venv/core
	$(INSTALL) --editable '.[docs]'
	touch $@

demo: .venv/core  ## train small runs on bundled images, audit them, draw the figures and write demo/report.html
	$(BIN)/creditscope reproduce demo --out $(DEMO) --resume

test: .venv/dev  ## run the tests (browser tests skip, by name, where no Chromium is installed)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow and not ray and not gpu and not peers"

test-peers: .venv/all  ## run the tests against other people's packages: trainers, loggers, BioTorch, timm
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "peers and not slow and not gpu"

test-all: .venv/all  ## run every test, those that need Ray and the slow ones too (a GPU apart)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not gpu"

check: .venv/dev  ## ruff, mypy (strict), the import contracts and the licences
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/licences.py

audit-deps: .venv/dev  ## known vulnerabilities of the pinned packages (asks a service on the net; fails without it)
	$(INSTALL) pip-audit
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

.venv-oldest/done: pyproject.toml tools/oldest.py constraints.txt
	$(PYTHON) -m venv .venv-oldest
	$(PYTHON) tools/oldest.py > .venv-oldest/requirements.txt
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check --requirement .venv-oldest/requirements.txt \
		"$$(grep '^torch==' constraints.txt)" 'pytest>=8' 'hypothesis>=6.110'
	touch $@

test-oldest: .venv-oldest/done  ## records, protocol and report tests on the oldest versions that pyproject.toml allows (not torch's)
	PYTHONPATH=src OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest tests/records tests/protocol tests/report \
		-m "not slow and not browser and not peers"

fuzz: .venv/all  ## search every loader for inputs that break it, FUZZ_SECONDS=60 each
	OMP_NUM_THREADS=1 $(BIN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS)

bench: .venv/core  ## every benchmark that needs no GPU, as ratios; some minutes
	$(BIN)/python benchmarks/fleet.py
	$(BIN)/python benchmarks/demo.py
	$(BIN)/python benchmarks/probes.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/audit_scale.py --logs 100 1000 --rounds 1

docs: .venv/docs  ## build the documentation; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

clean:  ## remove what the other targets made
	rm -rf .venv .venv-oldest demo docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
