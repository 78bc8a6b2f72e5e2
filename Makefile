.DEFAULT_GOAL := help
.PHONY: help setup up demo t check nightly fmt gen release clean small-clients large-clients
PYTHON ?= python3
# Each test that starts a process would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
PIP := pip install --quiet --disable-pip-version-check
# Installs in seconds what takes pip minutes.
UV := packaging/uv
INSTALL := $(UV) pip install --quiet
HAS_NPM := $(shell command -v npm)

help: ## Print this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10
	@echo; echo "What takes longer: $(BIN)/python -m trials --list"

setup: $(VENV)/dev ## Install what development needs into .venv

up: $(VENV)/run ## Start the suite with a simulated model
	@$(BIN)/headrace up --simulate --config-dir examples --data-dir .data

AGENT ?= assistant
ASK ?= What is the weather in Paris today?
demo: $(VENV)/run ## Start it, ask one question, stop (AGENT=… ASK="…")
	@$(BIN)/headrace up --simulate --config-dir examples --data-dir .data/demo --port 0 --grpc-port 0 --simulate-port 0 --agent "$(AGENT)" --ask "$(ASK)"

t: $(VENV)/dev ## Try what you changed, in 20 s: ruff, pyright, the nearest tests
	@$(BIN)/python -m tests.quick

check: $(VENV)/dev ## Run what CI runs
	@$(BIN)/python -m trials check

nightly: $(VENV)/dev ## Run what the check has no time for, in two hours
	@$(BIN)/python -m trials nightly

fmt: $(VENV)/dev ## Format, and mend what ruff can mend
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

clean: ## Remove what was made; .data stays
	rm -rf build dist *.egg-info .venv .venv-proto .venv-other .pytest_cache .ruff_cache .hypothesis .schemathesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# --- environments

$(VENV)/run: constraints.txt pyproject.toml
	@echo "1/4 creating the environment $(VENV) (some 5 s)"
	@$(PYTHON) -m venv $(VENV)
	@echo "2/4 installing uv, which installs the rest (some 5 s)"
	@$(BIN)/$(PIP) -c packaging/requirements.txt uv
	@echo "3/4 installing $$(grep -c == packaging/hashes/suite.txt) packages (some 15 s)"
	@$(INSTALL) --python $(BIN)/python -c constraints.txt -e .
	@echo "4/4 compiling (some 5 s)"
	@$(BIN)/python -m compileall -q -j 0 headrace services
	@touch $@

$(VENV)/dev: $(VENV)/run
	$(INSTALL) --python $(BIN)/python -c constraints.txt -e '.[dev]'
	@touch $@

# The stubs are made with the oldest grpcio-tools that users may have at run time, so it has an environment of its own.
# The build of the image has no uv.
PROTO_VENV := .venv-proto
$(PROTO_VENV)/done: protos/requirements.txt $(VENV)/run
	$(PYTHON) -m venv $(PROTO_VENV)
	$(if $(shell command -v $(BIN)/uv),$(INSTALL) --python $(PROTO_VENV)/bin/python,$(PROTO_VENV)/bin/$(PIP)) -r protos/requirements.txt
	@touch $@

# --- the contract, and what is generated

PROTO_RUN := PATH="$(CURDIR)/$(PROTO_VENV)/bin:$$PATH" protos/compile -I protos
PROTOS := $(sort $(wildcard protos/headrace/v1/*.proto))
SERVICES := $(filter-out %/common.proto %/limits.proto,$(PROTOS))
# Others' contracts: stubs are made of them, and nothing else.
FOREIGN := $(wildcard protos/headrace/a2a/*.proto)

build/image.binpb: $(PROTOS) $(PROTO_VENV)/done
	@mkdir -p build
	$(PROTO_RUN) --include_imports --include_source_info --descriptor_set_out=$@ $(PROTOS)

OPENAPI := build/openapi.json
# What of the client for browsers the console loads is committed as it is built: Python alone serves it.
CONSOLE_CLIENT := services/facade/console/static/client
CONSOLE_FILES := errors fold json pauses reading run_stream sse transport watches
# Which files are the versions of constraints.txt: what the suite needs, what each extra adds, and what builds the image.
HASHES := packaging/hashes
COMPILE := $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-config -c constraints.txt

# In this order: each is made of those before it.
gen: $(VENV)/dev build/image.binpb ## Write all that is generated (HASHES=: without the network)
	$(PROTO_RUN) --python_out=. --mypy_out=quiet:. $(PROTOS) $(FOREIGN)
	sed -i 's/_descriptor_pool\.Default()/_POOL/; s/^from google.protobuf import descriptor_pool as .*/from headrace.a2a import POOL as _POOL/' \
		headrace/a2a/a2a_pb2.py
	$(PROTO_RUN) --grpc_python_out=. --mypy_grpc_out=quiet:. $(SERVICES) $(FOREIGN)
	$(PROTO_VENV)/bin/python protos/comments build/image.binpb headrace/v1/comments.json
	$(BIN)/python packaging/client/make_stubs.py
	$(BIN)/python -m docs.generate
ifdef HAS_NPM
	@$(MAKE) --no-print-directory $(CLIENTS)/headrace/done
	cp $(CONSOLE_FILES:%=$(CLIENTS)/headrace/package/dist/%.js) $(CONSOLE_CLIENT)
else
	@echo "NOTICE: Node is not installed: the console's copy of the client is NOT written"
endif
ifneq ($(HASHES),)
	$(COMPILE) pyproject.toml >build/suite.txt && mv build/suite.txt $(HASHES)
	for extra in cloud data documents; do \
		$(COMPILE) $$(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package \1/p' $(HASHES)/suite.txt) --extra $$extra \
			pyproject.toml >build/$$extra.txt && mv build/$$extra.txt $(HASHES) || exit; done
	printf 'buf-bin\nsetuptools\n' | $(COMPILE) - >build/build.txt && mv build/build.txt $(HASHES)
endif

$(OPENAPI): $(VENV)/dev headrace/v1/comments.json $(wildcard headrace/v1/*_pb2.py services/facade/*.py services/facade/openapi/*.py)
	@mkdir -p $(@D)
	$(BIN)/python -m services.facade.openapi >$@

# --- the gateway in Go

GATEWAY := deploy/gateway
# The same flags for every step, so that each package is compiled once.
GO_RUN := cd $(GATEWAY) && CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false'

$(GATEWAY)/gen/done: build/image.binpb $(GATEWAY)/buf.gen.yaml $(GATEWAY)/go.mod $(VENV)/dev
	$(GO_RUN) $(CURDIR)/$(BIN)/buf generate $(CURDIR)/build/image.binpb --path headrace
	@touch $@

build/gateway: $(GATEWAY)/gen/done $(GATEWAY)/go.sum $(shell find $(GATEWAY) -name '*.go' -not -path '*/gen/*')
	$(GO_RUN) go build -ldflags='-s -w' -o $(CURDIR)/$@ .

# --- clients; the build of the image goes without

CLIENTS := build/clients
-include tests/clients/environments.mk

# --- releases

RELEASE := build/release
release: ## Commit, tag and make VERSION (DRY_RUN=1, SIGN=KEY)
ifdef DRY_RUN
	@rm -rf $(RELEASE)/clone && git clone --quiet . $(RELEASE)/clone
	@SERIES=$(CURDIR)/build/series $(MAKE) --no-print-directory -C $(RELEASE)/clone release DRY_RUN=
else
	@mkdir -p $(RELEASE)
	$(PYTHON) packaging/release.py "$(VERSION)" >$(RELEASE)/notes.md
	@$(MAKE) --no-print-directory gen HASHES=
	$(PROTO_RUN) --include_imports --descriptor_set_out=protos/headrace.binpb $(PROTOS)
	git commit --quiet --all --message "Release $(VERSION)"
	git tag $(if $(SIGN),--sign --local-user $(SIGN),--annotate) v$(VERSION) --file $(RELEASE)/notes.md
	@$(MAKE) --no-print-directory build/gateway $(CLIENTS)/headrace/done
	packaging/publish $(SIGN)
endif
