.DEFAULT_GOAL := help
.PHONY: help setup demo up example test test-fast test-other-python test-grpcio clients a2a-tck prerequisites check nightly lint types docs bench performance performance-transports soak simulate schedules faults hostile fuzz proto proto-check proto-release gateway gateway-check gateway-openapi sync-client typescript-client sbom hashes image-check cluster-check kube-check chart release release-files
PYTHON ?= python3
# Each test that starts a process would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
PROTO_VENV := .venv-proto
PROTO_RUN := PATH="$(CURDIR)/$(PROTO_VENV)/bin:$$PATH" protos/compile -I protos
PROTOS := $(sort $(wildcard protos/headrace/v1/*.proto))
SERVICES := $(filter-out %/common.proto %/limits.proto,$(PROTOS))
# Others' contracts: stubs are made of them, and nothing else.
FOREIGN := $(wildcard protos/headrace/a2a/*.proto)
IMAGE := protos/headrace.binpb
PIP := pip install --quiet --disable-pip-version-check
# Installs in seconds what takes pip minutes.
UV := packaging/uv
INSTALL := $(UV) pip install --quiet

help: ## Print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

AGENT ?= assistant
ASK ?= What is the weather in Paris today?
demo: $(VENV)/run ## Start the suite with a simulated model, ask one question, stop (AGENT=… ASK="…")
	@$(BIN)/headrace up --simulate --config-dir examples --data-dir .data/demo --port 0 --grpc-port 0 --simulate-port 0 --agent "$(AGENT)" --ask "$(ASK)"

up: $(VENV)/run ## Start the suite with a simulated model and keep it running
	@$(BIN)/headrace up --simulate --config-dir examples --data-dir .data

# Others' programs, each with what it needs in an environment of its own; `make test` tries the small ones.
CLIENTS := build/clients

NAME ?= four-eyes
CALL ?=
OWN_MODES := triage digest debate
SHOW_ag-ui = examples/clients/show_ag_ui.py $(CLIENTS)/ag_ui/page
SHOW_a2a = examples/clients/show_a2a.py $(CLIENTS)/a2a/bin/python
SHOW_mcp-inspector = examples/clients/show_mcp_inspector.py $(CLIENTS)/node/node_modules/.bin/mcp-inspector $(CALL)
NEEDS_ag-ui := ag_ui
NEEDS_mcp-inspector := node
NEEDS_a2a := a2a
SHOW_NEEDS := $(patsubst %,$(CLIENTS)/%/done,$(NEEDS_$(NAME)))
example: $(VENV)/run $(SHOW_NEEDS) ## Show an example on a simulated model: how people decide (NAME=four-eyes, on-call or two-tabs), a mode of one's own (NAME=triage, digest or debate), agents in a React page (NAME=ag-ui), in the MCP Inspector (NAME=mcp-inspector), or with one of another SDK (NAME=a2a)
	@$(BIN)/python $(or $(SHOW_$(NAME)),$(if $(filter $(NAME),$(OWN_MODES)),examples/own_modes/show.py $(NAME),examples/people/$(subst -,_,$(NAME)).py))

SMALL_CLIENTS := $(patsubst %,$(CLIENTS)/%/done,agents a2a instructor moto oidc $(if $(shell command -v npm),node headrace) $(if $(shell command -v go),go))
LARGE_CLIENTS := $(patsubst %,$(CLIENTS)/%/done,frameworks open_webui $(if $(shell command -v npm),typescript ag_ui) \
	$(if $(shell command -v go),ghz) $(if $(shell command -v mvn),java))

PREPARED := prerequisites $(VENV)/dev $(if $(shell command -v go),build/gateway) $(SMALL_CLIENTS)
test: $(PREPARED) ## Run the tests that hold what an edit can break, and 100 simulated worlds
	$(BIN)/python -m tests.run $(SHARED) -m "not nightly"
	$(BIN)/python -m trials.simulation 1-100

nightly: $(PREPARED) test-other-python image-check ## What the check has no time for: the other tests, other transports and forms, another Python, the image, 2,000 worlds
	$(BIN)/python -m tests.run $(SHARED) -m nightly
	HEADRACE_TRANSPORT=grpcio $(BIN)/python -m tests.run $(SHARED) $(ON_GRPCIO)
	HEADRACE_TRANSPORT=local $(BIN)/python -m tests.run $(SHARED) $(ON_LOCAL)
	SUITE_FORM=--split $(BIN)/python -m tests.run $(SHARED) $(SPLIT)
	$(BIN)/python -m trials.simulation 1-2000

clients: $(VENV)/dev $(SMALL_CLIENTS) $(LARGE_CLIENTS) ## Try all outside clients of docs/clients.md, the large ones too (2 GB)
	$(BIN)/pytest tests/clients

A2A_TCK ?= build/a2a-tck
a2a-tck: $(VENV)/dev ## Run A2A's compatibility kit against a suite (A2A_TCK=folder of its branch 1.0-dev, which is not fetched)
ifeq ($(wildcard $(A2A_TCK)/run_tck.py),)
	@echo "NOTICE: no compatibility kit at $(A2A_TCK): clone a2aproject/a2a-tck, branch 1.0-dev, there: A2A is NOT held against it" >&2
else
	@test -x build/a2a-tck-env/bin/pytest || { $(PYTHON) -m venv build/a2a-tck-env && build/a2a-tck-env/bin/$(PIP) $(A2A_TCK); }
	$(BIN)/python -m tests.clients.a2a_tck $(A2A_TCK) build/a2a-tck-env/bin/python
endif

$(CLIENTS)/node/done: tests/clients/node/package.json
	@mkdir -p $(@D)
	cp $< $(@D)
	ln -sfn $(CURDIR)/tests/clients/node $(@D)/programs
	cd $(@D) && npm install --silent --no-package-lock --no-fund --no-audit --ignore-scripts
	@touch $@

EXAMPLES := examples/clients
$(CLIENTS)/go/done: build/image.binpb $(VENV)/dev $(filter-out %/v1,$(wildcard $(EXAMPLES)/go/*))
	@mkdir -p $(@D)
	cd $(EXAMPLES)/go && $(CURDIR)/$(BIN)/buf generate $(CURDIR)/build/image.binpb --path headrace
	cd $(EXAMPLES)/go && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $(CURDIR)/$(@D)/client .
	@touch $@

$(CLIENTS)/typescript/done: build/image.binpb $(VENV)/dev $(wildcard $(EXAMPLES)/typescript/*.json $(EXAMPLES)/typescript/src/*)
	@rm -rf $(@D) && mkdir -p $(CLIENTS) && cp -r $(EXAMPLES)/typescript $(@D)
	cd $(@D) && npm install --silent --no-package-lock --no-fund --no-audit --ignore-scripts
	cd $(@D) && $(CURDIR)/$(BIN)/buf generate $(CURDIR)/build/image.binpb && npm run --silent build
	@touch $@

AG_UI := $(EXAMPLES)/ag-ui
$(CLIENTS)/ag_ui/done: $(AG_UI)/package.json $(wildcard $(AG_UI)/page/*.html $(AG_UI)/page/*.css $(AG_UI)/src/*)
	@rm -rf $(@D) && mkdir -p $(CLIENTS) && cp -r $(AG_UI) $(@D)
	cd $(@D) && npm install --silent --no-package-lock --no-fund --no-audit --ignore-scripts && npm run --silent build
	@touch $@

$(CLIENTS)/java/done: $(PROTOS) $(EXAMPLES)/java/pom.xml $(wildcard $(EXAMPLES)/java/src/*/java/example/*)
	@rm -rf $(@D) && mkdir -p $(CLIENTS) && cp -r $(EXAMPLES)/java $(@D)
	cd $(@D) && mvn -q -B -Dprotos=$(CURDIR)/protos -Dmdep.outputFile=classpath test-compile dependency:build-classpath
	@touch $@

$(CLIENTS)/ghz/done: tests/clients/ghz/go.mod
	cd $(<D) && CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$(@D)/ghz github.com/bojand/ghz/cmd/ghz
	@touch $@

# The lists have all packages, so there is nothing to resolve; most of what could be compiled is never run.
$(CLIENTS)/%/done: tests/clients/python/%.txt $(VENV)/dev
	$(UV) venv --quiet --clear --python $(BIN)/python $(@D)
	$(UV) pip install --quiet --python $(@D)/bin/python --no-deps -r $<
	@touch $@

# Tests wait about as long as they compute: with three workers two cores have work, and who is done takes from what another
# has left.
SHARED := -n 3 --dist worksteal

# What RPCs go through on their way, and commands, which are forked beside gRPC's threads; nothing else that is behind the
# handlers sees the transport.
ON_GRPCIO := tests/runtime --ignore tests/runtime/http2 tests/conformance tests/facade/a2a tests/test_streams.py tests/test_client.py \
	$(addprefix tests/e2e/test_,main_job.py leaving.py conformance.py files.py grpc_examples.py reflection.py trace.py) \
	tests/e2e/test_crash.py::test_a_service_that_is_killed_comes_back_and_the_chat_goes_on \
	tests/tools/test_main.py::test_commands_start_while_other_calls_come_and_go

# In memory, what lies between a handler and its caller; tests/runtime/http2 has its own cases for each pair of ends.
ON_LOCAL := tests/facade/a2a tests/runtime/local tests/runtime/rpc tests/runtime/auth tests/conformance tests/test_streams.py tests/test_client.py

# The whole suite as `headrace up --split` and a cluster run it: killed, left, drained, and what its faces say.
SPLIT := $(addprefix tests/e2e/test_,crash.py main_job.py leaving.py conformance.py files.py effects.py trace.py)

prerequisites:
	@tests/prerequisites

# The layout and the contract, everything that parses, and one run through every service, killed in the middle.
# The longest stands first: the others run beside it.
FAST := 'tests/e2e/test_crash.py::test_killed_in_mid_run_and_started_again[tool.output]' tests/test_layout.py \
	tests/test_protos.py tests/test_errors.py tests/test_fold.py tests/test_event_json.py tests/docs/test_complete.py \
	tests/docs/test_generated.py tests/docs/test_references.py tests/runtime/rpc tests/orchestrator/agents \
	tests/orchestrator/run/test_approval_rules.py tests/llm_gateway/providers tests/facade/requests \
	tests/memory/requests/test_append.py
test-fast: $(VENV)/dev ## After each change: the layout, the contract, parsers, and one run through every service
	$(BIN)/pytest -q $(SHARED) $(FAST)

# The newest Python that the machine has beside the one of $(VENV).
OTHER_PYTHON ?= $(shell for minor in 14 13 12; do \
	for python in python3.$$minor "$$(pyenv prefix 3.$$minor 2>/dev/null)/bin/python3"; do \
	"$$python" -c '' 2>/dev/null && echo "$$python" && exit; done; done)
OTHER_VENV := .venv-other
test-other-python: $(if $(OTHER_PYTHON),$(OTHER_VENV)/dev) ## Run `test-fast` on the newest other Python that is there (OTHER_PYTHON=…)
ifeq ($(OTHER_PYTHON),)
	@echo "NOTICE: no newer Python is installed: the suite is NOT tried on a second one" >&2
else
	$(OTHER_VENV)/bin/python -m tests.run -q $(SHARED) $(FAST) tests/runtime/http2/test_tls.py tests/facade/openapi
endif

$(OTHER_VENV)/dev: constraints.txt pyproject.toml $(VENV)/run
	$(UV) venv --quiet --clear --python $(OTHER_PYTHON) $(OTHER_VENV)
	$(INSTALL) --python $(OTHER_VENV)/bin/python -c constraints.txt -e '.[dev]'
	@touch $@

test-grpcio: $(VENV)/dev $(if $(shell command -v go),build/gateway) ## Run all tests on grpcio, of which `test` takes a part
	HEADRACE_TRANSPORT=grpcio $(BIN)/python -m tests.run $(SHARED) $(NOT_ON_GRPCIO)

# Tests of our own transport; and of replicas, which need it: one channel to several addresses.
NOT_ON_GRPCIO := --ignore tests/runtime/http2 --ignore tests/cluster

check: $(VENV)/dev lint types proto-check gateway-check test ## What CI runs: format, lint, types, protos, tests

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/dev
	$(BIN)/pyright

docs: $(VENV)/dev ## Write the generated regions of docs/reference; `make check` compares them
	$(BIN)/python -m docs.generate

bench: $(VENV)/dev $(if $(shell command -v go),build/gateway) ## Measure all entrances and both transports beside their peers; the facades, memory, runs, the start
	$(BIN)/python -m benchmarks.entrances
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.facades
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.runs
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.forms
	$(BIN)/python -m benchmarks.replicated

performance: $(VENV)/dev $(if $(shell command -v go),build/gateway) ## Measure all entrances beside their peers on this machine, and write docs/performance.md (20 minutes, the machine idle)
	$(BIN)/python -m benchmarks.entrances --write docs

performance-transports: $(VENV)/dev ## Measure both transports beside LiteLLM on this machine, and write docs/performance-transports.md
	$(BIN)/python -m benchmarks --write docs

SOAK_ROUNDS ?= 1000
CLUSTER_ROUNDS ?= 200
HOSTILE_CONNECTIONS ?= 100000
soak: $(VENV)/dev ## Kill a run's owner at random events, and parts of a cluster, fail every system call, and look at what readers get (SOAK_ROUNDS=1000)
	HEADRACE_SOAK_ROUNDS=$(SOAK_ROUNDS) $(BIN)/pytest -q tests/orchestrator/cluster/test_crashes.py -k any_event
	CLUSTER_ROUNDS=$(CLUSTER_ROUNDS) CLUSTER_RUNS=50 $(BIN)/pytest -q tests/cluster/test_chaos.py
	HOSTILE_CONNECTIONS=$(HOSTILE_CONNECTIONS) $(BIN)/pytest -q tests/hostile/test_connections.py
	HEADRACE_CHATS_MAX=200 $(BIN)/pytest -q tests/memory/context/window/test_any_chat.py
	TOOLS_AWAY_S=30 $(BIN)/pytest -q tests/e2e/test_tools_away.py
	FULL_DISK_S=60 $(BIN)/pytest -q tests/e2e/test_full_disk.py
	$(BIN)/python -m trials.faults

SEEDS ?= 1-10000
simulate: $(VENV)/dev ## Run the services in simulated worlds with kills, cuts and failing peers, and judge what is left (SEEDS=1-10000, or one seed and SIMULATE=--story)
	$(BIN)/python -m trials.simulation $(SEEDS) $(SIMULATE)

ROUNDS ?= 1-22
schedules: $(VENV)/dev ## Kill two replicas and memory again and again while schedules come due, sixty kills a world: each time is begun once or told (ROUNDS=1-22)
	$(BIN)/python -m trials.simulation $(ROUNDS) --schedules

FAULTS ?=
faults: $(VENV)/dev ## Fail every system call of every service in turn under real work, and look at what becomes of it (FAULTS="--services memory", or points to repeat)
	$(BIN)/python -m trials.faults $(FAULTS)

HOSTILE_S ?= 10
hostile: $(VENV)/dev ## Send each class of attack at 1 MB/s without a credential; fails where an honest stream's gaps or memory grow too much (on an idle machine)
	$(BIN)/python -m tests.hostile.measure $(HOSTILE_S)
	$(BIN)/python -m tests.hostile.http.measure $(HOSTILE_S)

FUZZ_S ?= 60
BAD_REQUESTS ?= 10000
FRAME_CASES ?= 50000
fuzz: $(VENV)/fuzz $(VENV)/dev ## Search for bytes that break the readers of streams, logs and agent files, a route or an RPC (FUZZ_S=60 each, BAD_REQUESTS=10000 for each RPC)
	@for target in sse log_lines triple_quotes templates http2; do \
		$(BIN)/python -m trials.fuzz $$target -max_total_time=$(FUZZ_S) || exit 1; \
	done
	$(BIN)/pytest -q tests/e2e/test_openapi.py --http-examples $(FUZZ_S) --http-phases coverage,fuzzing
	$(BIN)/pytest -q tests/tenants/test_bad_requests.py --bad-requests $(BAD_REQUESTS)
	FRAME_CASES=$(FRAME_CASES) $(BIN)/pytest -q tests/hostile/test_frame_oracle.py

setup: $(VENV)/dev ## Make .venv with everything that development needs

$(VENV)/run: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP) -c packaging/requirements.txt uv
	$(INSTALL) --python $(BIN)/python -c constraints.txt -e .
	$(BIN)/python -m compileall -q headrace services
	@touch $@

$(VENV)/dev: $(VENV)/run
	$(INSTALL) --python $(BIN)/python -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/fuzz: $(VENV)/run
	$(INSTALL) --python $(BIN)/python -c constraints.txt -e '.[fuzz]'
	@touch $@

# The stubs are made with the oldest grpcio-tools that users may have at run time, so it has an environment of its own.
# The build of the image has no uv.
$(PROTO_VENV)/done: protos/requirements.txt $(VENV)/run
	$(PYTHON) -m venv $(PROTO_VENV)
	$(if $(shell command -v $(BIN)/uv),$(INSTALL) --python $(PROTO_VENV)/bin/python,$(PROTO_VENV)/bin/$(PIP)) -r protos/requirements.txt
	@touch $@

GATEWAY := deploy/gateway
# The same flags for every step, so that each package is compiled once.
GO_RUN := cd $(GATEWAY) && CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false'
gateway: build/gateway ## Build the production facade, deploy/gateway, as a static binary (needs Go)

$(GATEWAY)/gen/done: build/image.binpb $(GATEWAY)/buf.gen.yaml $(GATEWAY)/go.mod $(VENV)/dev
	$(GO_RUN) $(CURDIR)/$(BIN)/buf generate $(CURDIR)/build/image.binpb --path headrace
	@touch $@

build/gateway: $(GATEWAY)/gen/done $(GATEWAY)/go.sum $(GATEWAY)/internal/gateway/openapi.json $(shell find $(GATEWAY) -name '*.go' -not -path '*/gen/*')
	$(GO_RUN) go build -ldflags='-s -w' -o $(CURDIR)/$@ .

OPENAPI := $(GATEWAY)/internal/gateway/openapi.json
gateway-openapi: $(VENV)/dev ## Write the OpenAPI document that the production facade serves
	$(BIN)/python -m services.facade.openapi > $(OPENAPI)

gateway-check:
ifeq ($(shell command -v go),)
	@echo "NOTICE: Go is not installed: deploy/gateway is NOT built, linted or tested" >&2
else
	@$(MAKE) --no-print-directory build/gateway
	@test -z "$$(gofmt -l $(GATEWAY))" || { gofmt -l $(GATEWAY); exit 1; }
	$(GO_RUN) go vet ./...
	$(GO_RUN) go test ./internal/...
endif

# The client for browsers and Node. What of it the console loads is committed as it is built: Python alone serves it.
TYPESCRIPT := packaging/typescript
CONSOLE_CLIENT := services/facade/console/static/client
typescript-client: $(CLIENTS)/headrace/done ## Build @headrace/client, and give the console its files (needs Node)
	cp $(patsubst %,$(<D)/package/dist/%.js,errors fold json pauses reading run_stream sse transport) $(CONSOLE_CLIENT)

$(CLIENTS)/headrace/done: $(OPENAPI) $(addprefix $(TYPESCRIPT)/,package.json tsconfig.json README.md make_contract.py) $(wildcard $(TYPESCRIPT)/src/*.ts)
	@rm -rf $(@D) && mkdir -p $(@D)/package/src
	cp $(addprefix $(TYPESCRIPT)/,package.json tsconfig.json README.md) $(@D)/package
	cp $(filter-out %/contract.ts %/routes.ts,$(wildcard $(TYPESCRIPT)/src/*.ts)) $(@D)/package/src
	$(PYTHON) $(TYPESCRIPT)/make_contract.py $(@D)/package/src
	cd $(@D)/package && npm install --silent --no-package-lock --no-fund --no-audit --ignore-scripts
	cd $(@D)/package && npm run --silent build && npm pack --silent --pack-destination ..
	@touch $@

sync-client: $(VENV)/dev ## Write headrace/sync, the client for programs without an event loop, from the asynchronous one
	$(BIN)/python packaging/client/make_sync.py

SBOM := build/sbom
SBOM_VENV := build/sbom-venv
sbom: $(SBOM)/python.cdx.json $(if $(shell command -v go),$(SBOM)/gateway.cdx.json) ## Write what the suite and the Go gateway consist of, as CycloneDX documents

# An environment with the suite alone, as the image has it, and beside it the tool that lists it.
$(SBOM)/python.cdx.json: pyproject.toml constraints.txt packaging/requirements.txt
	$(PYTHON) -m venv --clear $(SBOM_VENV)/suite
	$(SBOM_VENV)/suite/bin/$(PIP) -c constraints.txt '.[data]'
	$(SBOM_VENV)/suite/bin/pip uninstall -qy setuptools pip
	$(PYTHON) -m venv --clear $(SBOM_VENV)/tool
	$(SBOM_VENV)/tool/bin/$(PIP) -r packaging/requirements.txt
	@mkdir -p $(SBOM)
	$(SBOM_VENV)/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o $@ $(SBOM_VENV)/suite

$(SBOM)/gateway.cdx.json: build/gateway
	@mkdir -p $(SBOM)
	$(GO_RUN) go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -output $(CURDIR)/$@ $(CURDIR)/build/gateway

RELEASE := build/release
OUT = $(RELEASE)/$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
release: ## Give the project VERSION, commit, tag, and make the files in build/release (DRY_RUN=1: in a clone; SIGN=KEY: by gpg)
ifdef DRY_RUN
	@rm -rf $(RELEASE)/clone && git clone --quiet . $(RELEASE)/clone
	@$(MAKE) --no-print-directory -C $(RELEASE)/clone release DRY_RUN=
else
	@mkdir -p $(RELEASE)
	$(PYTHON) packaging/release.py "$(VERSION)" >$(RELEASE)/notes.md
	@$(MAKE) --no-print-directory proto-release gateway-openapi chart
	git commit --quiet --all --message "Release $(VERSION)"
	git tag $(if $(SIGN),--sign --local-user $(SIGN),--annotate) v$(VERSION) --file $(RELEASE)/notes.md
	@$(MAKE) --no-print-directory release-files
endif

# What is published: of the tag that is checked out, as everything that it is made of.
release-files: $(VENV)/dev build/gateway sbom $(CLIENTS)/headrace/done
	@rm -rf $(OUT) && mkdir -p $(OUT)
	$(BIN)/pip wheel --quiet --no-deps -w $(OUT) ./packaging/client ./packaging/server
	cp $(CLIENTS)/headrace/headrace-client-*.tgz $(SBOM)/*.json $(OPENAPI) $(OUT)
	cp build/image.binpb $(OUT)/protos.binpb
	cp build/gateway $(OUT)/headrace-gateway-$$(go env GOOS)-$$(go env GOARCH)
	cd tests/deploy/helm && go tool helm package $(CURDIR)/deploy/helm/headrace --destination $(CURDIR)/$(OUT)
	@missing=$$($(BIN)/python -m tests.deploy.image.programs); if [ -n "$$missing" ]; \
		then echo "NOTICE: not here: $$missing: the image is NOT among the files" >&2; \
		else $(BIN)/python -m tests.deploy.image.archive $(OUT); fi
	cd $(OUT) && sha256sum * >SHA256SUMS
	$(if $(SIGN),cd $(OUT) && gpg --batch --local-user $(SIGN) --armor --detach-sign SHA256SUMS)

# Which files are the versions of constraints.txt: what the suite needs, what [data] adds, and what builds the image.
HASHES := packaging/hashes
COMPILE := $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-config -c constraints.txt
hashes: $(VENV)/run ## Write packaging/hashes anew for the versions of constraints.txt
	$(COMPILE) pyproject.toml >$(HASHES)/suite.txt
	$(COMPILE) $$(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package \1/p' $(HASHES)/suite.txt) --extra data pyproject.toml \
		>$(HASHES)/data.txt
	printf 'buf-bin\nsetuptools\n' | $(COMPILE) - >$(HASHES)/build.txt

image-check: $(VENV)/dev ## Build the image without a registry and hold it to what the manifests say of pods (root, buildah, podman, runc, mmdebstrap, Go)
	@missing=$$($(BIN)/python -m tests.deploy.image.programs); if [ -n "$$missing" ]; \
		then echo "NOTICE: not here: $$missing: the image is NOT built or tried" >&2; \
		else $(BIN)/pytest -q tests/deploy/image/check_image.py; fi

cluster-check: $(VENV)/dev ## Run both overlays on a real Kubernetes, and break it: before a release (root, Debian's packages, Go; the machine for itself)
	@missing=$$($(BIN)/python -m tests.deploy.cluster.kube); if [ -n "$$missing" ]; \
		then echo "not here: $$missing" >&2; exit 1; \
		else $(BIN)/pytest -q tests/deploy/cluster/check_*.py; fi

kube-check: $(VENV)/dev ## Have a real Kubernetes API server take the manifests, and Helm the chart (needs Go; compiles both)
	$(BIN)/pytest -q tests/deploy/apiserver/check_apply.py tests/deploy/helm/check_chart.py

RULES := deploy/kubernetes/components/prometheus-operator/rules.yaml
chart: $(VENV)/run ## Make the Helm chart from deploy/kubernetes/overlays/prod, and the operator's rules from the alerts (needs Go)
	printf 'apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: headrace, namespace: headrace}\nspec:\n' >$(RULES)
	sed -n '/^groups:/,$$ s/^./  &/p' deploy/observability/alerts.yaml >>$(RULES)
	cd tests/deploy/kustomize && go tool kustomize build $(CURDIR)/deploy/kubernetes/overlays/prod >$(CURDIR)/build/prod.yaml
	$(BIN)/python deploy/helm/make_chart.py deploy/helm/headrace <build/prod.yaml

GENERATED := .
proto: build/image.binpb ## Regenerate the stubs and the comments in headrace/v1
	@mkdir -p $(GENERATED)
	$(PROTO_RUN) --python_out=$(GENERATED) --mypy_out=quiet:$(GENERATED) $(PROTOS) $(FOREIGN)
	$(PROTO_RUN) --grpc_python_out=$(GENERATED) --mypy_grpc_out=quiet:$(GENERATED) $(SERVICES) $(FOREIGN)
	$(PROTO_VENV)/bin/python protos/comments build/image.binpb $(GENERATED)/headrace/v1/comments.json

build/image.binpb: $(PROTOS) $(PROTO_VENV)/done
	@mkdir -p build
	$(PROTO_RUN) --include_imports --include_source_info --descriptor_set_out=$@ $(PROTOS)

proto-check: $(VENV)/dev build/image.binpb ## Lint the protos, compare the stubs, find breaking changes
	$(BIN)/buf lint build/image.binpb --config protos/buf.yaml
	$(BIN)/buf breaking build/image.binpb --against $(IMAGE) --config protos/buf.yaml
	@rm -rf build/stubs && $(MAKE) --no-print-directory --silent proto GENERATED=build/stubs
	diff -r --exclude='__pycache__' --exclude='__init__.py' build/stubs/headrace/v1 headrace/v1
	diff -r --exclude='__pycache__' --exclude='__init__.py' build/stubs/headrace/a2a headrace/a2a

proto-release: build/image.binpb ## Take the protos as they are for the contract that later changes are held against
	$(PROTO_RUN) --include_imports --descriptor_set_out=$(IMAGE) $(PROTOS)
