# The verbs of this project. A virtual environment is made in .venv unless one is active.
VENV ?= $(if $(VIRTUAL_ENV),$(VIRTUAL_ENV),.venv)
PYTHON := $(VENV)/bin/python
OLDEST := .venv-oldest

.PHONY: run test test-oldest load faults lint format install install-dev

run: install
	$(PYTHON) app.py

test: install-dev
	$(PYTHON) -m pytest

load: install-dev
	$(PYTHON) tests/load/clients.py

faults: install-dev
	$(PYTHON) tests/load/faults.py

test-oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/python -m pytest

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
