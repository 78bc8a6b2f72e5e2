.DEFAULT_GOAL := help
.PHONY: help setup demo up test check lint types bench fuzz proto proto-check proto-release
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROTO_VENV := .venv-proto
PROTO_RUN := PATH="$(CURDIR)/$(PROTO_VENV)/bin:$$PATH" protos/compile -I protos
PROTOS := $(sort $(wildcard protos/headrace/v1/*.proto))
SERVICES := $(filter-out %/common.proto,$(PROTOS))
IMAGE := protos/headrace.binpb
PIP := pip install --quiet --disable-pip-version-check

help: ## Print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

AGENT ?= assistant
ASK ?= What is the weather in Paris today?
demo: $(VENV)/run ## Start the suite with a simulated model, ask one question, stop (AGENT=… ASK="…")
	@$(BIN)/headrace up --simulate --config-dir examples --data-dir .data/demo --port 0 --grpc-port 0 --simulate-port 0 --agent "$(AGENT)" --ask "$(ASK)"

up: $(VENV)/run ## Start the suite with a simulated model and keep it running
	@$(BIN)/headrace up --simulate --config-dir examples --data-dir .data

test: $(VENV)/dev ## Run all tests
	$(BIN)/pytest

check: $(VENV)/dev lint types proto-check test ## What CI runs: format, lint, types, protos, tests

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/dev
	$(BIN)/pyright

bench: $(VENV)/dev ## Measure what a delta costs, beside a bare relay
	$(BIN)/python -m benchmarks

FUZZ_S ?= 60
fuzz: $(VENV)/fuzz ## Search for bytes that break the readers of streams, logs and agent files (FUZZ_S=60 each)
	@for target in sse log_lines triple_quotes; do \
		$(BIN)/python -m fuzz $$target -max_total_time=$(FUZZ_S) || exit 1; \
	done

setup: $(VENV)/dev ## Make .venv with everything that development needs

$(VENV)/run: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP) -c constraints.txt -e .
	@touch $@

$(VENV)/dev: $(VENV)/run
	$(BIN)/$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/fuzz: $(VENV)/run
	$(BIN)/$(PIP) -c constraints.txt -e '.[fuzz]'
	@touch $@

# The stubs are made with the oldest grpcio-tools that users may have at run time, so it has an environment of its own.
$(PROTO_VENV)/done: protos/requirements.txt
	$(PYTHON) -m venv $(PROTO_VENV)
	$(PROTO_VENV)/bin/$(PIP) -r protos/requirements.txt
	@touch $@

GENERATED := .
proto: $(PROTO_VENV)/done ## Regenerate the stubs in headrace/v1
	@mkdir -p $(GENERATED)
	$(PROTO_RUN) --python_out=$(GENERATED) --mypy_out=quiet:$(GENERATED) $(PROTOS)
	$(PROTO_RUN) --grpc_python_out=$(GENERATED) --mypy_grpc_out=quiet:$(GENERATED) $(SERVICES)

build/image.binpb: $(PROTOS) $(PROTO_VENV)/done
	@mkdir -p build
	$(PROTO_RUN) --include_imports --include_source_info --descriptor_set_out=$@ $(PROTOS)

proto-check: $(VENV)/dev build/image.binpb ## Lint the protos, compare the stubs, find breaking changes
	$(BIN)/buf lint build/image.binpb --config protos/buf.yaml
	$(BIN)/buf breaking build/image.binpb --against $(IMAGE) --config protos/buf.yaml
	@rm -rf build/stubs && $(MAKE) --no-print-directory --silent proto GENERATED=build/stubs
	diff -r --exclude='__pycache__' --exclude='__init__.py' build/stubs/headrace/v1 headrace/v1

proto-release: build/image.binpb ## Take the protos as they are for the contract that later changes are held against
	$(PROTO_RUN) --include_imports --descriptor_set_out=$(IMAGE) $(PROTOS)
