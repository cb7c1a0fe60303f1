# `make demo` and `make test` set up .venv on their own; a second run installs nothing that has not changed.

PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # with it every process compiles all that it imports, for ten seconds

demo: .venv/ready
	$(BIN)/lion demo

test: .venv/ready .venv/triton
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror lion/ops/cpu/src/*
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

docs: .venv/ready  # runs the notebooks; build/site/index.html
	$(BIN)/jupyter execute docs/notebooks/*.ipynb
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

torture: .venv/ready  # kills, faults, damage and nonsense, for 40 minutes: a table of what was tried and what was lost
	$(BIN)/python -m tests.torture

thorough: .venv/ready .venv/triton  # all of the tests, the slow ones too
	LION_THOROUGH=1 $(BIN)/python -m pytest -n 2

KERNELS := setup.py $(wildcard lion/ops/cpu/src/*)

.venv/ready: pyproject.toml constraints.txt $(KERNELS)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --no-compile --constraint constraints.txt --editable ".[dev]"
	-$(BIN)/python tests/neighbours.py timm transformers
	touch $@

.venv/triton: .venv/ready  # a gigabyte, for the tests of the GPU kernels, which are skipped without it
ifeq ($(shell uname -sm),Linux x86_64)
	-$(BIN)/python -m pip install -q --no-compile --constraint constraints.txt triton
endif
	touch $@

clean:
	rm -rf .venv build *.egg-info lion/ops/cpu/*.so lion/ops/cpu/build_failed.txt .mypy_cache .pytest_cache .ruff_cache

.PHONY: demo test docs torture thorough clean
