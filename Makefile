# make run     train L-CP and L-Tucker on the embedded Cora by the paper's protocol and print the table
# make test    every check: format, lint, types, tests, examples, docstring examples, README snippets

PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test format clean

run: .venv/.installed
	@echo "Ten runs each of L-CP and L-Tucker on Cora: some minutes on two cores."
	$(BIN)/codesgc train cora --model L-CP L-Tucker --runs 10

test: .venv/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest

format: .venv/.installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

.venv/.installed-test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	touch .venv/.installed $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
