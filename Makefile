.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROTO_VENV := .venv-proto
PROTOS := $(sort $(wildcard protos/headrace/v1/*.proto))
SERVICES := $(filter-out %/common.proto,$(PROTOS))
IMAGE := protos/headrace.binpb

help: ## Print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/run: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/dev: $(VENV)/run
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(VENV)/dev ## Make .venv with everything that development needs

# The stubs are made with the oldest grpcio-tools that users may have at run time, so it has an environment of its own.
$(PROTO_VENV)/done: protos/requirements.txt
	$(PYTHON) -m venv $(PROTO_VENV)
	$(PROTO_VENV)/bin/pip install --quiet --disable-pip-version-check -r protos/requirements.txt
	@touch $@

GENERATED := .
proto: $(PROTO_VENV)/done ## Regenerate the stubs in headrace/v1
	@mkdir -p $(GENERATED)
	PATH="$(CURDIR)/$(PROTO_VENV)/bin:$$PATH" protos/compile -I protos --python_out=$(GENERATED) --mypy_out=quiet:$(GENERATED) $(PROTOS)
	PATH="$(CURDIR)/$(PROTO_VENV)/bin:$$PATH" protos/compile -I protos --grpc_python_out=$(GENERATED) --mypy_grpc_out=quiet:$(GENERATED) $(SERVICES)

build/image.binpb: $(PROTOS) $(PROTO_VENV)/done
	@mkdir -p build
	PATH="$(CURDIR)/$(PROTO_VENV)/bin:$$PATH" protos/compile -I protos --include_imports --include_source_info --descriptor_set_out=$@ $(PROTOS)

proto-check: $(VENV)/dev build/image.binpb ## Lint the protos, compare the stubs, find breaking changes
	$(BIN)/buf lint build/image.binpb --config protos/buf.yaml
	$(BIN)/buf breaking build/image.binpb --against $(IMAGE) --config protos/buf.yaml
	@rm -rf build/stubs && $(MAKE) --no-print-directory --silent proto GENERATED=build/stubs
	diff -r --exclude='__pycache__' --exclude='__init__.py' build/stubs/headrace/v1 headrace/v1

proto-release: build/image.binpb ## Take the protos as they are for the contract that later changes are held against
	PATH="$(CURDIR)/$(PROTO_VENV)/bin:$$PATH" protos/compile -I protos --include_imports --descriptor_set_out=$(IMAGE) $(PROTOS)
