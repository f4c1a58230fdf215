# Bare `make` prints what there is to make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test test-all test-pythons check bench interop sim sanitize docs wheels clean

help:  ## print these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

$(STAMP): pyproject.toml hatch_build.py $(wildcard native/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[spark,dev]'
	$(BIN)/python -m compileall -q src
	touch $@

demo: $(STAMP)  ## run the main job: access log -> topic -> Spark -> Parquet (LOG=path takes your own file)
	$(BIN)/millstream demo $(if $(LOG),--log '$(LOG)')

check: $(STAMP)  ## format, lint, types, layers and the fast tests: a minute or two
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/run_tests.py -n 2 --one-example-of 10 -m 'not slow and not interop and not system and not spark'

test: $(STAMP)  ## what needs no Java tools: `check` plus real processes, stock clients and Spark
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/run_tests.py --checks mypy lint-imports -- -n 4 --one-example-of 2 -m 'not spark and not long' \
		--beside -m 'spark and not long' tests/spark

test-all: test  ## `test`, all examples of the property tests, and what takes long: many seeds, kills at random moments
	$(BIN)/python tools/run_tests.py -n 2 -m 'not long' tests/property
	$(BIN)/python tools/run_tests.py -n 2 -m long

test-pythons:  ## the fast tests on Python 3.12, 3.13 and 3.14, those that this machine has (PYTHONS=3.13)
	PYTHONS='$(PYTHONS)' $(PYTHON) tools/other_pythons.py

interop: $(STAMP)  ## Apache Kafka's own tools and the differential runner (Maven, or KAFKA_HOME)
	$(BIN)/pytest -q tests/interop --java

bench: $(STAMP)  ## the benchmark tables, beside Apache Kafka where it can be had
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m bench

sim: $(STAMP)  ## a cluster under seeded faults (SEED=7, or SEEDS=1-500; SECONDS=60 of virtual time)
	$(BIN)/python -m millstream.sim $(if $(SEEDS),--seeds $(SEEDS),--seed $(or $(SEED),1)) --seconds $(or $(SECONDS),60)

sanitize: $(STAMP)  ## hostile input for the C kernel under gcc's sanitizers, from another seed each time: some minutes
	$(BIN)/python native/sanitize.py

docs: $(STAMP)  ## the pages of docs/ as a site in build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'open build/site/index.html'

wheels: $(STAMP)  ## wheels for Linux, macOS and Windows in build/wheels; the one for this machine is installed and tried
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[wheels]'
	$(BIN)/python tools/build_wheels.py

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .pytest_cache_beside .hypothesis .import_linter_cache
