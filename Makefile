# The verbs of this project. A virtual environment is made in .venv unless one is active.
VENV ?= $(if $(VIRTUAL_ENV),$(VIRTUAL_ENV),.venv)
PYTHON := $(VENV)/bin/python
OLDEST := .venv-oldest

FUZZ ?= 3000

.PHONY: run test fuzz test-oldest load faults mutants lint format install install-dev

run: install
	$(PYTHON) app.py

# Two at a time: the tests of one file stay together, and each half still has a core where there are two.
test: install-dev
	$(PYTHON) -m pytest -n 2 --dist loadfile

fuzz: install-dev
	FUZZ=$(FUZZ) $(PYTHON) -m pytest tests/fuzz --timeout 7200

load: install-dev
	$(PYTHON) tests/load/clients.py --clients 50
	$(PYTHON) tests/load/soak.py

faults: install-dev
	$(PYTHON) tests/load/faults.py
	$(PYTHON) tests/load/page_faults.py

mutants: install-dev
	$(PYTHON) tests/mutants/run.py

test-oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/python -m pytest -n 2 --dist loadfile

lint: install-dev
	$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check . && $(PYTHON) -m mypy

format: install-dev
	$(PYTHON) -m ruff check --fix . && $(PYTHON) -m ruff format .

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/bin/python:
	python3 -m venv $(VENV)

$(VENV)/.installed: requirements.txt | $(VENV)/bin/python
	@echo "Installing what requirements.txt names into $(VENV): this takes some minutes and is done once."
	$(PYTHON) -m pip install --disable-pip-version-check --quiet -r requirements.txt
	touch $@

$(VENV)/.installed-dev: requirements-dev.txt requirements-mcp.txt requirements.txt | $(VENV)/bin/python
	@echo "Installing what requirements-dev.txt names into $(VENV): this takes some minutes and is done once."
	$(PYTHON) -m pip install --disable-pip-version-check --quiet -r requirements-dev.txt
	touch $@ $(VENV)/.installed

$(OLDEST)/.installed: requirements-oldest.txt requirements-dev.txt requirements-mcp.txt requirements.txt
	@echo "Installing what requirements-oldest.txt names into $(OLDEST): some minutes and 6 GB of disk, once."
	python3 -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --disable-pip-version-check --quiet -r requirements-oldest.txt
	touch $@
