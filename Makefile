# The verbs of Whorl. Each sets up what it needs by itself: an environment in .venv/, a build in build/.
#
#   make test                      the tests, on the compiled build with all run-time checks, on all cores
#   make test PYTHON=python3.14    with another Python
#   make test WHORL_BUILD=pure     with the plain Python sources
#   make test ARGS="-k timer -x"   ARGS goes to the program that the verb runs
#   make test ARGS=--slow          the slow tests, too

PYTHON ?= python3
WHORL_BUILD ?= compiled
CONFIGS ?= checked release
CONFIG ?= checked
SECONDS ?= 60
ARGS ?=

whorl = $(PYTHON) -m build_tools --build $(WHORL_BUILD)
bench_extras = bench,peers$(if $(findstring --programs,$(ARGS)),$(comma)programs)
comma = ,

.DEFAULT_GOAL := help
.PHONY: help demo test check types docs bench conformance frameworks recipes faults fuzz soak stress oracle build wheel wheels \
	format clean

help:  ## this list
	@sed -n 's/^#   //p' Makefile
	@echo
	@sed -n 's/^\([a-z]*\): *## */make \1|/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

demo:  ## serve real HTTP traffic on Whorl and on the other loops, and compare
	@$(whorl) --with frameworks,bench --config release -- examples/demo $(ARGS)

test:  ## the tests
	@PYTHONMALLOC=$(if $(filter pure,$(WHORL_BUILD)),,debug) $(whorl) --with test,frameworks,jupyter --config checked -- -m pytest $(ARGS)

check:  ## lint, type-check for the oldest and the newest Python, and the tests that only read sources and pages
	@$(PYTHON) -m build_tools --build pure --with check -- -m ruff check .
	@$(PYTHON) -m build_tools.headers
	@$(PYTHON) -m build_tools --build pure --with check -- -m mypy --python-version 3.11
	@$(PYTHON) -m build_tools --build pure --with check -- -m mypy --python-version 3.14
	@$(PYTHON) -m build_tools --build pure --with check,test -- -m pytest -m text -q -rfE $$(grep -rl --include='test_*.py' 'pytest.mark.text' tests)

types: pyright = $(PYTHON) -m build_tools --build pure --with check,types -- -m pyright
types:  ## check that each public name has a known type; needs the package index
	@if ! $(pyright) --version >/dev/null; then \
		echo "NOT INSTALLED: pyright, so nothing says whether the public types are complete"; \
	else for version in 3.11 3.14; do \
		$(pyright) --verifytypes whorl --ignoreexternal --pythonversion $$version || exit; done; fi

docs:  ## build the site in build/site; warnings and links to nothing are errors
	@rm -rf build/site
	@$(PYTHON) -m build_tools --build pure --with docs,prometheus,opentelemetry -- -m sphinx -W --keep-going -q -E \
		-c docs -d build/site-doctrees . build/site

bench: CONFIG = release
bench:  ## compare loops in interleaved rounds; needs a C compiler; CONFIG=profiled measures what wheels have
	@$(whorl) --with $(bench_extras) --config $(CONFIG) -- bench $(ARGS)

conformance:  ## CPython's own tests of asyncio, on Whorl
	@$(whorl) --with test --config checked -- tests/conformance $(ARGS)

frameworks:  ## other projects' own tests, on stock asyncio and on Whorl; ARGS names some of them, or --quick
	@$(whorl) --with test --config release -- tests/frameworks/suites $(ARGS)

recipes:  ## Whorl with the newest releases of frameworks and libraries; ARGS names some of them
	@$(whorl) --with recipes --config release -- recipes $(ARGS)

faults:  ## the transport tests over a kernel that fails on purpose, 200 seeds
	@WHORL_FAULT_SEEDS=$${WHORL_FAULT_SEEDS:-200} $(whorl) --with test --config checked -- -m pytest -m faults $(ARGS)

soak:  ## everything together for SECONDS, beside asyncio: memory, descriptors, latencies; draws build/soak.svg
	@$(whorl) --with test,frameworks --config release -- -m tests.soak --seconds $(SECONDS) $(ARGS)

oracle:  ## record the order of libuv's callbacks anew: fetches and builds libuv in build/; says what differs
	@$(whorl) --with test -- -m tests.oracle $(ARGS)

fuzz:  ## call everything with anything, for SECONDS; CONFIG=sanitized looks at each access to memory
	@$(whorl) --with test --config $(CONFIG) -- -m tests.fuzz --seconds $(SECONDS) $(ARGS)

stress:  ## loops in 2, 4 and 8 threads at once with traffic of every kind, for SECONDS
	@PYTHONMALLOC=debug $(whorl) --with test --config $(CONFIG) -- -m tests.stress --seconds $(SECONDS) $(ARGS)

build:  ## only build
	@for config in $(CONFIGS); do $(whorl) --with test,frameworks,jupyter --config $$config || exit; done

wheel:  ## build a wheel in dist/, install it into an empty environment, and try it; needs the package index
	@rm -rf dist
	@$(whorl) -- -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .
	@$(PYTHON) -m venv dist/installed
	@dist/installed/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl pytest
	@dist/installed/bin/python build_tools/smoke.py --expect $(WHORL_BUILD)
	@dist/installed/bin/whorl info
	@echo 'def test_it(): import whorl; whorl.new_event_loop().close()' >dist/test_it.py
	@cd dist && for start in 'python -m pytest' 'whorl run -m pytest'; do installed/bin/$$start -q -W error test_it.py || exit; done

wheels:  ## a release in dist/: sdist and wheels for all Pythons found, checked, installed and tried
	@$(PYTHON) -m build_tools --build pure --with wheels -- -m build_tools.wheels $(ARGS)

format:  ## put the sources in order
	@$(PYTHON) -m build_tools --build pure --with check -- -m ruff check --fix .
	@$(PYTHON) -m build_tools --build pure --with check -- -m ruff format .

clean:  ## remove builds, environments and caches
	rm -rf build dist .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
