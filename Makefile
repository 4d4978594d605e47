# `make demo` and `make test` work on a fresh machine; everything else builds on the same `.venv`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-slow test-federation test-sinks lint types bench clean

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/fedloom run

test: setup
	$(BIN)/python -m pytest -n auto tests/unit tests/contract
	$(BIN)/python -m pytest tests/integration tests/flower

test-slow: setup
	$(BIN)/python -m pytest -m slow

test-federation: .venv/flower
	$(BIN)/python -m pytest -m flower

.venv/flower: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[flower]'
	touch $@

test-sinks: .venv/sinks
	$(BIN)/python -m pytest -m sinks

.venv/sinks: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tensorboard,mlflow,wandb]'
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

bench: setup
	for file in bench/bench_*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache
