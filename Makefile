# Everything runs from .venv, which `setup` makes once and makes again when
# pyproject.toml or constraints.txt change. Python: python3, or `make PYTHON=... setup`.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# torch comes first and alone: whichever build of this version pip finds (CPU or GPU) then stays.
TORCH  := torch==2.13.0

# One torch thread per process: two processes with two threads each crawl on two cores.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

DEMO_EPOCHS ?= 200
DEMO_OUT    ?= comparisons/demo

DEVICE ?= cpu

.DEFAULT_GOAL := help
.PHONY: help setup demo test bench bench-compare evidence check format docs clean distclean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(READY)  ## make .venv with all that the demo, tests, examples and docs need

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: no '$(PYTHON)' found; install Python 3.11 or newer, or run: make PYTHON=/path/to/python setup"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Python 3.11 or newer is needed, '$(PYTHON)' is $$($(PYTHON) --version 2>&1); run: make PYTHON=/path/to/python3.11 setup"; exit 1; }
	@echo "setup 1/4: virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "setup 2/4: pip"
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "setup 3/4: $(TORCH) (the largest download)"
	@$(BIN)/python -m pip install --disable-pip-version-check $(TORCH)
	@echo "setup 4/4: graph-transplant with its tools, versions from constraints.txt"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
	@echo "setup: ready"

demo: setup  ## compare Graph Transplant with plain training, on graphs that the package generates
	$(BIN)/graph-transplant compare typed-motifs --methods vanilla,label-smoothing,transplant-dp \
	  --models gcs --layers 3 --folds 10 --train-fraction 0.075 --epochs $(DEMO_EPOCHS) \
	  --learning-rate 0.002 --batch-size 16 --workers 2 --out $(DEMO_OUT)

test: setup  ## all tests, two processes
	@echo "kernels: compiled once, then from their cache; seconds:"
	@$(ONE_THREAD) $(BIN)/python benchmarks/bench.py --compile
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

bench: setup  ## time of one training step beside plain PyTorch Geometric, writes bench.json; two workers beside one; prediction and attack beside PyG. DEVICE=cuda: steps on a GPU
	$(ONE_THREAD) $(BIN)/python benchmarks/bench.py --device $(DEVICE)
ifeq ($(DEVICE),cpu)
	$(ONE_THREAD) $(BIN)/python benchmarks/engines.py
	$(ONE_THREAD) $(BIN)/python benchmarks/predict.py
	$(ONE_THREAD) $(BIN)/python benchmarks/attack.py --bench
endif

bench-compare: setup  ## training steps of a commit beside those of this tree: make bench-compare REV=main
	@test -n "$(REV)" || { echo "error: which commit? make bench-compare REV=main"; exit 1; }
	$(ONE_THREAD) $(BIN)/python benchmarks/compare.py $(REV)

evidence:  ## run what is missing of the measurements behind the results page; hours, resumable
	$(PYTHON) -m reproduction.evidence

check: setup docs  ## formatting, lint, types, docs without warnings, a wheel that passes twine
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/twine check --strict dist/*

format: setup  ## let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup  ## build docs/_build/html, warnings are errors
	$(ONE_THREAD) $(BIN)/sphinx-build --quiet --nitpicky --fail-on-warning --keep-going -b html docs docs/_build/html

clean:  ## remove everything that was built, except .venv
	rm -rf build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* htmlcov
	find . \( -name $(VENV) -o -name .evidence \) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove .venv as well
	rm -rf $(VENV)
