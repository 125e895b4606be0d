# make demo: set up, search for a faster kernel, print the result.   make test: set up, run every check.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt
PORT ?= 2024

.PHONY: demo test studio install check-tools clean

demo: $(VENV)/.installed
	$(BIN)/ksearch run int8_gemm --model playbook --budget 60

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

# The same file as `ksearch` without --db. What .env sets is used here too.
studio: $(VENV)/.installed-studio
	@set -a; if [ -f .env ]; then . ./.env; fi; set +a; \
	  echo "Runs: $${KSEARCH_DB:-.ksearch/ksearch.db} (make studio KSEARCH_DB=FILE takes another)"; \
	  echo "Studio: https://smith.langchain.com/studio/?baseUrl=http://127.0.0.1:$(PORT)"; \
	  LANGSMITH_TRACING=false LANGGRAPH_CLI_NO_ANALYTICS=1 LANGGRAPH_NO_VERSION_CHECK=true \
	  $(BIN)/langgraph dev --no-reload --no-browser --port $(PORT)

install: $(VENV)/.installed

check-tools:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; say which with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || \
	  { echo "Python's venv module is missing (Debian: apt install python3-venv)"; exit 1; }
	@command -v g++ >/dev/null || { echo "g++ is missing (Debian: apt install g++)"; exit 1; }

$(VENV)/bin/python: | check-tools
	$(PYTHON) -m venv $(VENV)

# torch first, at the version that the constraints pin: a plain `torch` may bring gigabytes of CUDA.
$(VENV)/.torch: constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.installed-studio: $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[studio]'
	@touch $@

# flashinfer-bench without its dependencies, which hold gigabytes of CUDA: its data models are all that tests need.
$(VENV)/.installed-dev: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) --no-deps flashinfer-bench
	@touch $@ $(VENV)/.installed $(VENV)/.installed-studio

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
