# `make demo` and `make test` work on a fresh machine; everything else builds on the same `.venv`.
PYTHON ?= python3
BIN := .venv/bin
# Compiled modules are kept: otherwise each of the many processes of the tests compiles them again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test test-slow test-faults test-federation test-browser test-export test-sinks test-memory test-processes test-whole lint types \
  bench docs release sbom pip-audit clean

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,onnx]'
	touch $@

demo: setup
	$(BIN)/fedloom run

test: setup
	$(BIN)/python -m pytest -n auto --dist worksteal tests/unit tests/contract tests/integration tests/flower

# Commands and workers that start, and runs that are killed, fill their disk or find their files damaged.
test-processes: setup
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'processes and not slow' tests/unit/federation tests/integration

# Commands, notebooks and exports from end to end: those of the documentation, of auto, and of runs that were stopped.
test-whole: setup
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'whole and not slow' tests/unit tests/integration

test-slow: setup
	$(BIN)/python -m pytest -m slow

# Plants faults into copies of the source and sees whether tests notice; see tests/faults/plant.py. Half an hour.
test-faults: setup
	$(BIN)/python tests/faults/plant.py

test-federation: .venv/flower
	$(BIN)/python -m pytest -m 'flower and not slow'

test-export: setup
	$(BIN)/python -m pytest -m export

.venv/flower: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[flower]'
	touch $@

# A browser cannot come from pip: on Debian it is installed if one may, elsewhere one is told how.
test-browser: .venv/browser
	@command -v chromium >/dev/null || test -n "$$FEDLOOM_CHROMIUM" || \
	  { command -v apt-get >/dev/null && test "$$(id -u)" = 0 && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  { echo "make test-browser needs Chromium: 'apt-get install chromium' as root, or set FEDLOOM_CHROMIUM=/path/to/it"; exit 1; }
	$(BIN)/python -m pytest -m browser tests/browser

.venv/browser: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	touch $@

test-sinks: .venv/sinks
	$(BIN)/python -m pytest -m sinks

.venv/sinks: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tensorboard,mlflow,wandb]'
	touch $@

# Every network under an allocator that looks for damage to memory, as on this CPU and as on one with AVX2 alone.
test-memory: setup
	$(BIN)/python -m pytest -m memory -rs tests/memory

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# The API reference in build/api, from docstrings; every link in it is checked.
docs: .venv/docs
	$(BIN)/python tools/api_reference.py
	$(BIN)/python -m pytest -m docs tests/integration/test_api_reference.py

.venv/docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

# sdist and wheel in dist/, installed in a fresh environment and tried there; see CONTRIBUTING.md. Uploads nothing.
release: .venv/release
	$(BIN)/python tools/release.py

.venv/release: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	touch $@

# Every package of the environment, as CycloneDX 1.5 in build/sbom.json.
sbom: setup
	$(BIN)/python tools/sbom.py

# Known advisories for these packages; without a network it says so and ends well.
pip-audit: setup
	$(BIN)/python tools/audit.py

bench: setup
	for file in bench/bench_*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache
