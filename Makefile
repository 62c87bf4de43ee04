# make setup     prepares .venv (what is installed already is left alone)
# make rehearse  the whole runbook on this machine, without a GPU
# make test      lint, types, all tests, the notebooks
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
REQUIREMENTS := requirements.txt requirements-model.txt
LOCK := --universal --generate-hashes --no-emit-index-url --no-annotate --no-header

# make host      prepares .venv for an inference host, with less
.PHONY: setup host rehearse test lint lock reference example clean

setup: $(STAMP)

$(STAMP): requirements.txt requirements-host.txt requirements-model.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "make: no $(PYTHON) here. Wanted: Python 3.11 or newer. Next: apt-get install python3 python3-venv, or make PYTHON=/path/to/python3.11 setup" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1). Wanted: Python 3.11 or newer. Next: make PYTHON=/path/to/python3.11 setup" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: $(PYTHON) has no venv module. Wanted: the package python3-venv. Next: apt-get install python3-venv" >&2; exit 2; }
	@rm -f .venv/.installed .venv/.installed-host
	test -x $(BIN)/uv || { \
	  boot=$$(mktemp -d) && trap 'rm -rf "$$boot"' EXIT && $(PYTHON) -m venv "$$boot" && \
	  "$$boot/bin/python" -m pip install --quiet --disable-pip-version-check "$$(sed -n 's/^\(uv==[0-9.]*\).*/\1/p' requirements.txt)" && \
	  "$$boot/bin/uv" venv --quiet --allow-existing --python $(PYTHON) .venv && \
	  "$$boot/bin/uv" pip sync --quiet --python $(BIN)/python --require-hashes $(REQUIREMENTS); }
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes $(REQUIREMENTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# An inference host: no JupyterLab, no engine of the rehearsal, no tests.
host:
	@$(MAKE) --no-print-directory setup STAMP=.venv/.installed-host REQUIREMENTS=requirements-host.txt

rehearse: setup
	$(BIN)/runbook run params/rehearsal.yaml --apply

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest
	$(BIN)/python -m pytest --nbmake --nbmake-timeout=600 notebooks/

# The pinned set, from the ranges of pyproject.toml; without any index address.
lock: setup
	$(BIN)/uv pip compile --quiet pyproject.toml --all-extras $(LOCK) -o requirements.txt
	$(BIN)/uv pip compile --quiet pyproject.toml --extra setup --constraint requirements.txt $(LOCK) -o requirements-host.txt

# The references of docs/, from the program itself.
reference: setup
	$(BIN)/python -m runbook.reference docs

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The committed example: a rehearsal from a clone at a neutral place, without its box.
# Run it in /opt/golive-runbook: make PYTHON=/usr/bin/python3 example
example: setup
	rm -rf outputs/example docs/example-run
	$(BIN)/runbook run params/rehearsal.yaml --apply --out outputs/example
	mkdir -p docs/example-run
	cd outputs/example && tar cf - --exclude=./box --exclude=./run.lock --exclude=./logs . | tar xf - -C ../../docs/example-run
	chmod -R u=rwX,go=rX docs/example-run
