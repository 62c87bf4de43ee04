# make setup     prepares .venv (what is installed already is left alone)
# make rehearse  the whole runbook on this machine, without a GPU
# make test      lint, types, all tests, the notebooks
# make quick     lint, types, the tests that start no server: under two minutes
#
# rehearse and test bring what they need of the system and this machine lacks (requirements-system.txt),
# or say so before anything else.
#
# make test-rehearsal       the documented rehearsal, and what it left is judged
# make rehearse-sglang      the same with the real SGLang, on the CPU
# make test-sglang          the tests that need it
# make train-tiny-eagle3    trains its models again
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
REQUIREMENTS := requirements.txt requirements-model.txt
LOCK := --universal --generate-hashes --no-emit-index-url --no-annotate --no-header

# make host      prepares .venv for an inference host, with less
.PHONY: setup host rehearse test test-rehearsal quick lint lock reference example clean needs-rehearse needs-test
.PHONY: setup-sglang rehearse-sglang test-sglang train-tiny-eagle3
.NOTPARALLEL:

setup: $(STAMP)

$(STAMP): requirements.txt requirements-host.txt requirements-model.txt pyproject.toml
	@PYTHON='$(PYTHON)' sh tools/system_packages.sh setup
	@rm -f .venv/.installed .venv/.installed-host
	@echo "preparing .venv: about half a minute, 1.2 GB"
	@test -x $(BIN)/uv || { \
	  boot=$$(mktemp -d) && trap 'rm -rf "$$boot"' EXIT && $(PYTHON) -m venv "$$boot" && \
	  "$$boot/bin/python" -m pip install --quiet --disable-pip-version-check "$$(sed -n 's/^\(uv==[0-9.]*\).*/\1/p' requirements.txt)" && \
	  "$$boot/bin/uv" venv --quiet --allow-existing --python $(PYTHON) .venv && \
	  "$$boot/bin/uv" pip sync --quiet --python $(BIN)/python --require-hashes $(REQUIREMENTS); }
	@$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes $(REQUIREMENTS)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# An inference host: no JupyterLab, no engine of the rehearsal, no tests.
host:
	@$(MAKE) --no-print-directory setup STAMP=.venv/.installed-host REQUIREMENTS=requirements-host.txt

needs-rehearse needs-test:
	@PYTHON='$(PYTHON)' sh tools/system_packages.sh $(@:needs-%=%)

rehearse: needs-rehearse setup
	$(BIN)/runbook run params/rehearsal.yaml --apply

# SGLang in an environment of its own. torch comes by pip and unpinned by hash: where pip knows a CPU
# build it takes that, else a CUDA build of 4.7 GB.
SGLANG := .venv-sglang
setup-sglang: setup $(SGLANG)/.installed

$(SGLANG)/.installed: requirements-sglang.txt | $(STAMP)
	$(BIN)/uv venv --quiet --allow-existing --python $(PYTHON) $(SGLANG)
	$(BIN)/python -m pip --python $(SGLANG)/bin/python install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(SGLANG)/bin/python --no-deps --require-hashes -r requirements-sglang.txt
	printf '%s\nimport without_torchvision_kernels\n' "$(CURDIR)/runbook/rehearsal/sglang_cpu" \
	  > "$$($(SGLANG)/bin/python -c 'import site; print(site.getsitepackages()[0])')/stand_in.pth"
	@touch $@

# RELEASE=0.5.20 takes another release than the one that is installed.
RELEASE :=
rehearse-sglang: needs-rehearse setup-sglang $(if $(RELEASE),$(SGLANG)/sglang-$(RELEASE))
	$(BIN)/runbook run params/rehearsal-sglang.yaml --apply \
	  $(if $(RELEASE),-p 'server.env.PYTHONPATH=$(CURDIR)/$(SGLANG)/sglang-$(RELEASE)')

train-tiny-eagle3: setup-sglang
	$(SGLANG)/bin/python -m runbook.rehearsal.train_tiny_eagle3 runbook/rehearsal/tiny_eagle3
	$(SGLANG)/bin/python -m runbook.rehearsal.tiny_corpus params/rehearsal-sglang.jsonl

# Another release, beside the installed one: whole or not there, since Python fills up what lacks.
$(SGLANG)/sglang-%: requirements-sglang-releases.txt | $(SGLANG)/.installed
	@rm -rf $@ $@.part
	sed -n '/^sglang==$* /,/[^\\]$$/p' $< > $@.part.txt
	$(BIN)/uv pip install --quiet --target $@.part --python $(SGLANG)/bin/python --no-deps --require-hashes -r $@.part.txt
	@rm $@.part.txt && mv $@.part $@ && touch $@

test-sglang: needs-test setup-sglang $(SGLANG)/sglang-0.5.10.post1 $(SGLANG)/sglang-0.5.20
	RUNBOOK_TEST_SGLANG=1 $(BIN)/python -m pytest tests/real_sglang -n 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A test that starts a server, a box, a kernel or a browser is left to `make test`.
quick: lint
	$(BIN)/python -m pytest --quick -n 2 -r fE

WORKERS := 2
# Two at a time: half of the tests wait for a boot or a server. What judges a measurement runs alone.
test: needs-test lint
	$(BIN)/python -m pytest --nbmake --nbmake-timeout=120 -m "not alone" -n $(WORKERS) notebooks tests
	$(BIN)/python -m pytest -m alone

# `make rehearse`, and what it left is judged. What its user does then is done after a short run.
test-rehearsal: needs-test setup
	$(BIN)/python -m pytest tests/chain/test_chain_rehearsal.py --documented -k "not Afterwards"

# The pinned set, from the ranges of pyproject.toml; without any index address.
lock: setup
	$(BIN)/uv pip compile --quiet pyproject.toml --all-extras $(LOCK) -o requirements.txt
	$(BIN)/uv pip compile --quiet pyproject.toml --extra setup --constraint requirements.txt $(LOCK) -o requirements-host.txt
	$(BIN)/uv pip compile --quiet requirements-sglang.in --no-emit-package torch $(LOCK) -o requirements-sglang.txt

# The references of docs/, from the program itself.
reference: setup
	$(BIN)/python -m runbook.reference docs

clean:
	rm -rf .venv .venv-sglang .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The committed example: a rehearsal from a clone at a neutral place, without its box.
# Run it in /opt/golive-runbook: make PYTHON=/usr/bin/python3 example
example: setup
	rm -rf outputs/example
	$(BIN)/runbook run params/rehearsal.yaml --apply --out outputs/example
	rm -rf docs/example-run
	mkdir -p docs/example-run
	cd outputs/example && tar cf - --exclude=./box --exclude=./run.lock --exclude=./logs . | tar xf - -C ../../docs/example-run
	chmod -R u=rwX,go=rX docs/example-run
