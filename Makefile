# Each target does all its own set-up in .venv; running one again at once is cheap.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev,trl,math,code,vision,search,mcp,ray,zim,eval
BIN := $(VENV)/bin
# The CPU build of PyTorch goes in first, so that no resolver pulls a CUDA build. Where your package index serves CUDA
# builds under this version, point TORCH_ARGS at a CPU index (pip's --index-url).
TORCH ?= torch==2.13.0
TORCH_ARGS ?=
CONSTRAINTS := constraints/cpu.txt
PYTEST_ARGS ?= -n 2


.PHONY: help train test test-browser setup lint format coverage bench clean

help:
	@echo "make train     train the tiny agent on a CPU (sets up .venv first)"
	@echo "make test      run the tests (sets up .venv first)"
	@echo "make lint      ruff and mypy --strict"
	@echo "make coverage  tests with the coverage of gem_core"
	@echo "make bench     the throughput tables of benchmarks/"

setup: $(VENV)/.ready

# What training needs; the tests' packages come on top.
$(VENV)/.trains: pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -c $(CONSTRAINTS) $(TORCH_ARGS) $(TORCH)
	$(BIN)/python -m pip install -q -c $(CONSTRAINTS) -e '.[trl]' tensorboard
	touch $@

$(VENV)/.ready: $(VENV)/.trains
	$(BIN)/python -m pip install -q -c $(CONSTRAINTS) -e '.[$(EXTRAS)]'
	touch $@

train: $(VENV)/.trains
	$(BIN)/python examples/train_trl_rebn.py $(ARGS)

test: setup
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# The report in a real browser.
test-browser: setup
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
		{ echo "needs Chromium: apt-get install chromium chromium-driver"; exit 1; }
	$(BIN)/python -m pip install -q -c $(CONSTRAINTS) 'selenium>=4.20'
	$(BIN)/python -m pytest -m browser tests/report

lint: setup
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: setup
	$(BIN)/python -m pytest $(PYTEST_ARGS) --cov=gem_core --cov-report=term:skip-covered --cov-fail-under=90

# Beside GEM 0.1 and TextArena, which get an environment of their own. ARGS=--record writes benchmarks/RESULTS.md.
BENCH_PYTHON := .venv-bench/bin/python
.venv-bench/.ready:
	$(PYTHON) -m venv .venv-bench
	$(BENCH_PYTHON) -m pip install -q gem-llm==0.1.0 textarena==0.7.4 nltk
	touch $@

bench: setup .venv-bench/.ready
	$(BIN)/python benchmarks/games.py --gem-python $(BENCH_PYTHON) --textarena-python $(BENCH_PYTHON) $(ARGS)
	$(BIN)/python benchmarks/vector.py --gem-python $(BENCH_PYTHON) $(ARGS)
	$(BIN)/python benchmarks/tokens.py $(ARGS)
	$(BIN)/python benchmarks/sandbox.py --gem-python $(BENCH_PYTHON) $(ARGS)
	$(BIN)/python benchmarks/grading.py --gem-python $(BENCH_PYTHON) $(ARGS)
	$(BIN)/python benchmarks/evaluation.py $(ARGS)
	$(BIN)/python benchmarks/soak.py $(ARGS)

clean:
	rm -rf $(VENV) .venv-bench build dist .pytest_cache .mypy_cache .ruff_cache
