# make run     train L-CP and L-Tucker on the embedded Cora by the paper's protocol, print the table, write a report
# make test    every check: format, lint, types, tests, examples, docstring examples, README snippets
# make sanitize   the kernels' tests under the address and undefined-behaviour sanitizers
# make tables  the tables of README.md and docs/results.md, from the files in results/
# make bench   every benchmark table, into benchmarks/RESULTS.md; on a machine that is otherwise idle

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt
CHROMIUM := /usr/bin/chromium
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
# what an installation depends on: its settings, the native sources, and which modules there are
SOURCES := pyproject.toml constraints.txt $(wildcard native/*) $(shell find src -type d -not -name __pycache__)

.PHONY: run test tables bench format sanitize postgresql clean

run: .venv/.installed
	@echo "Ten runs each of L-CP and L-Tucker on Cora: less than a minute on two cores, some minutes without a compiler."
	$(BIN)/codesgc reproduce --datasets cora --models L-CP L-Tucker --again --keep --out build/results
	@echo "The report, to be opened in a browser:"
	@$(BIN)/codesgc report build/results -o $(CURDIR)/build/report.html

test: .venv/.installed-test $(CHROMIUM) postgresql
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest

bench: .venv/.installed-test
	@{ echo "# Benchmarks"; echo; echo "Made by \`make bench\`; what each script measures, and how, stands at its beginning."; \
	for name in epoch conv memory roofline shares tables; do echo; $(BIN)/python benchmarks/$$name.py; done; } > build/RESULTS.md
	mv build/RESULTS.md benchmarks/RESULTS.md

tables: .venv/.installed
	$(BIN)/codesgc report results --markdown --update docs/results.md
	$(BIN)/codesgc report $(wildcard results/paper/*/L-CP.json results/paper/*/L-Tucker.json) --markdown --update README.md

format: .venv/.installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/.builder: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) scikit-build-core nanobind cmake ninja
	touch $@

.venv/.installed: .venv/.builder $(SOURCES)
	$(PIP) --no-build-isolation -e '.[report]'
	@$(BIN)/codesgc --version
	touch $@

.venv/.installed-test: .venv/.builder $(SOURCES)
	$(PIP) --no-build-isolation -e '.[test]'
	@$(BIN)/codesgc --version
	touch .venv/.installed $@

# the browser in which the report is tested; Debian's package
$(CHROMIUM):
	$(AS_ROOT) apt-get update --quiet
	$(AS_ROOT) apt-get install --quiet --yes --no-install-recommends chromium

# A real server for the tests of tuning, which start and stop it; without apt-get, install PostgreSQL by hand.
postgresql:
	@command -v initdb > /dev/null || ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || ! command -v apt-get > /dev/null || \
	{ $(AS_ROOT) apt-get update --quiet && $(AS_ROOT) apt-get install --quiet --yes postgresql; }

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The kernels' tests once more, on kernels that check every address and every operation.
sanitize: .venv/.installed-test
	$(BIN)/cmake -G Ninja -S native -B build/sanitize -DCODESGC_SANITIZE=ON -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja
	$(BIN)/cmake --build build/sanitize
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	CODESGC_NATIVE=build/sanitize $(BIN)/python -m pytest -p no:cacheprovider tests/test_native_dense.py tests/test_native_propagation.py
