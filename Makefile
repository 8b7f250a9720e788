# Two commands do everything: `make demo` and `make test`. Each sets up .venv by itself, once.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check
COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

.PHONY: help demo test test-long test-flower browser check format bench bench-quick bench-setup docs pictures lock clean

help:            ## this list
	@grep -E '^[a-z-]+: .*## |^[a-z-]+:  +## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# Core: what a user gets. Dev: what the tests need in addition, and the lab. Each is installed once, from the hashes of its lock, which
# is complete: pip need not look for dependencies, and some versions of it would look for newer ones.
.venv/core: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'choral needs Python 3.11 or newer: make PYTHON=python3.11 ...' >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo 'setting up .venv (once; needs the network) ...'
	@$(PIP) install -q --no-deps --require-hashes -r requirements.lock
	@$(PIP) install -q --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev: requirements-dev.lock lab/pyproject.toml .venv/core
	@echo 'adding what the tests need (once) ...'
	@$(PIP) install -q --no-deps --require-hashes -r requirements-dev.lock
	@$(PIP) install -q --no-deps --no-build-isolation -e ./lab
	@touch $@

demo: .venv/core   ## set up and run the main job
	@$(BIN)/choral demo

test: .venv/dev    ## set up and run the tests; those that look at pages are skipped where there is no browser
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not long'

test-long: .venv/dev ## the tests that take minutes
	$(BIN)/python -m pytest -n auto -m long

FLOWER ?= 1.42.*
test-flower:       ## the tests of deployments with another version of Flower, as FLOWER=1.42.*, in an environment for it alone
	@test -x .venv-flower/bin/python || $(PYTHON) -m venv .venv-flower
	@.venv-flower/bin/pip --disable-pip-version-check install -q --no-deps --require-hashes -r requirements.lock
	@.venv-flower/bin/pip --disable-pip-version-check install -q --no-deps --require-hashes -r requirements-dev.lock
	@.venv-flower/bin/pip --disable-pip-version-check install -q --no-deps --no-build-isolation -e . -e ./lab 'flwr==$(FLOWER)'
	.venv-flower/bin/python -m pytest -n auto --dist worksteal -m 'not long' tests/backends tests/deploy

browser:           ## Chromium, for the tests that look at pages (Debian's package, as root); .ci/run needs it
	@{ command -v chromium && command -v chromedriver; } >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q --no-install-recommends chromium chromium-driver; } || { echo 'the tests that look at pages need chromium and chromium-driver: install both' >&2; exit 1; }

check: .venv/dev   ## format, lint, strict types, import contracts, what the house weighs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.weigh

format: .venv/dev  ## rewrite the code in the house's form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-setup: .venv/dev ## install the peers, each into its own environment under .bench
	cd lab && ../$(BIN)/python -m bench.setup

bench: bench-setup ## every figure, next to the peers
	cd lab && ../$(BIN)/python -m bench

bench-quick: bench-setup ## the same in a few minutes
	cd lab && ../$(BIN)/python -m bench --quick

.venv/docs: requirements-docs.lock lab/pyproject.toml .venv/core
	@$(PIP) install -q --no-deps --require-hashes -r requirements-docs.lock
	@$(PIP) install -q --no-deps --no-build-isolation -e ./lab
	@touch $@

docs: .venv/docs   ## build the site, offline; broken links, code that no test runs, undocumented names fail it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: .venv/dev ## draw the pictures of the documentation again, and take its screenshots (needs Chromium)
	$(BIN)/python -m docs.drawings --screens --examples

lock: .venv/core   ## solve all locks again, for every supported Python
	@$(PIP) install -q uv
	$(COMPILE) pyproject.toml --extra dev -o requirements-dev.lock
	echo 'flit_core' | $(COMPILE) pyproject.toml - -c requirements-dev.lock -o requirements.lock
	$(COMPILE) pyproject.toml --extra docs -c requirements-dev.lock -o requirements-docs.lock
	echo 'flit_core' | $(COMPILE) pyproject.toml - --extra flower -c requirements-dev.lock -o requirements-flower.lock
	echo 'flit_core' | $(COMPILE) pyproject.toml - --extra flower --extra encoder -c requirements-dev.lock -o requirements-encoder.lock

clean:             ## forget the environments
	rm -rf .venv .venv-flower .bench
