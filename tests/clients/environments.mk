# Of the Makefile: our client for TypeScript, and others' programs, each in an environment of its own below build/clients.

EXAMPLES := examples/clients
NPM_INSTALL := npm install --silent --no-package-lock --no-fund --no-audit --ignore-scripts

small-clients: $(VENV)/dev $(patsubst %,$(CLIENTS)/%/done,agents a2a instructor moto oidc $(if $(HAS_NPM),node headrace) $(if $(HAS_GO),go)) \
	$(if $(HAS_GO),build/gateway)

large-clients: $(patsubst %,$(CLIENTS)/%/done,frameworks open_webui $(if $(HAS_NPM),typescript ag_ui) \
	$(if $(HAS_GO),ghz) $(if $(shell command -v mvn),java))

TYPESCRIPT := packaging/typescript
$(CLIENTS)/headrace/done: $(OPENAPI) $(addprefix $(TYPESCRIPT)/,package.json tsconfig.json README.md make_contract.py) $(wildcard $(TYPESCRIPT)/src/*.ts)
	@rm -rf $(@D) && mkdir -p $(@D)/package/src
	cp $(addprefix $(TYPESCRIPT)/,package.json tsconfig.json README.md) $(@D)/package
	cp $(filter-out %/contract.ts %/routes.ts,$(wildcard $(TYPESCRIPT)/src/*.ts)) $(@D)/package/src
	$(PYTHON) $(TYPESCRIPT)/make_contract.py $(@D)/package/src
	cd $(@D)/package && $(NPM_INSTALL) && npm run --silent build && npm pack --silent --pack-destination ..
	@touch $@

$(CLIENTS)/node/done: tests/clients/node/package.json
	@mkdir -p $(@D)
	cp $< $(@D)
	ln -sfn $(CURDIR)/tests/clients/node $(@D)/programs
	cd $(@D) && $(NPM_INSTALL)
	@touch $@

$(CLIENTS)/go/done: build/image.binpb $(VENV)/dev $(filter-out %/v1,$(wildcard $(EXAMPLES)/go/*))
	@mkdir -p $(@D)
	cd $(EXAMPLES)/go && $(CURDIR)/$(BIN)/buf generate $(CURDIR)/build/image.binpb --path headrace
	cd $(EXAMPLES)/go && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $(CURDIR)/$(@D)/client .
	@touch $@

$(CLIENTS)/typescript/done: build/image.binpb $(VENV)/dev $(wildcard $(EXAMPLES)/typescript/*.json $(EXAMPLES)/typescript/src/*)
	@rm -rf $(@D) && mkdir -p $(CLIENTS) && cp -r $(EXAMPLES)/typescript $(@D)
	cd $(@D) && $(NPM_INSTALL) && $(CURDIR)/$(BIN)/buf generate $(CURDIR)/build/image.binpb && npm run --silent build
	@touch $@

AG_UI := $(EXAMPLES)/ag-ui
$(CLIENTS)/ag_ui/done: $(AG_UI)/package.json $(wildcard $(AG_UI)/page/*.html $(AG_UI)/page/*.css $(AG_UI)/src/*)
	@rm -rf $(@D) && mkdir -p $(CLIENTS) && cp -r $(AG_UI) $(@D)
	cd $(@D) && $(NPM_INSTALL) && npm run --silent build
	@touch $@

$(CLIENTS)/java/done: $(PROTOS) $(EXAMPLES)/java/pom.xml $(wildcard $(EXAMPLES)/java/src/*/java/example/*)
	@rm -rf $(@D) && mkdir -p $(CLIENTS) && cp -r $(EXAMPLES)/java $(@D)
	cd $(@D) && mvn -q -B -Dprotos=$(CURDIR)/protos -Dmdep.outputFile=classpath test-compile dependency:build-classpath
	@touch $@

$(CLIENTS)/ghz/done: tests/clients/ghz/go.mod
	cd $(<D) && CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$(@D)/ghz github.com/bojand/ghz/cmd/ghz
	@touch $@

# The lists have all packages, so there is nothing to resolve.
$(CLIENTS)/%/done: tests/clients/python/%.txt $(VENV)/dev
	$(UV) venv --quiet --clear --python $(BIN)/python $(@D)
	$(INSTALL) --python $(@D)/bin/python --no-deps -r $<
	@touch $@
