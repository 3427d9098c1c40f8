# `make docs`: the generated pages, then the site into build/site. `make test` builds the site too, and looks at it and at
# the HTML view of fusions in a browser.
DOCS_VENV := .venv-docs

INSTALL_SITE = $(LOCKED) sh -c "{ [ -x $(DOCS_VENV)/bin/python ] || $(PY) -m venv $(DOCS_VENV); } && \
  $(DOCS_VENV)/bin/pip install --disable-pip-version-check -q -r requirements-docs.txt" && touch $(DOCS_VENV)/stamp

$(DOCS_VENV)/stamp: requirements-docs.txt | $(VENV)/stamp
	@$(INSTALL_SITE)

# Packages that only the tests of the site and of the HTML view need. Where it cannot be had they fail, and say so at
# the end of `make test`, when everything else has been tried: hence recipes that cannot fail. Tests of coverage and of
# gdb are skipped without their tools.
TEST_PACKAGES := --browser $(if $(filter Linux,$(shell uname)),--tools)
WANTS_test := $(if $(ARGS),,$(TEST_PACKAGES))
WANTS_test-all := $(WANTS_test)
# Whether this very call of make asks for the packages anyway.
BROWSER_ASKED := $(if $(wildcard build/system-metal.stamp),,$(filter test test-all,$(MAKECMDGOALS)))

ifeq ($(ARGS)$(filter test-near,$(MAKECMDGOALS)),)
test test-all: | site-if-possible browser-if-possible
else
# Few of the tests that are named look at pages.
test test-all test-near: | pages-if-asked
pages-if-asked: | $(VENV)/test.stamp
	@! $(CHOOSE) needs browser $(if $(filter test-near,$(MAKECMDGOALS)),--near $(BASE),$(ARGS)) || \
	  $(MAKE) site-if-possible browser-if-possible
endif

site-if-possible: | $(VENV)/test.stamp
	@[ $(DOCS_VENV)/stamp -nt requirements-docs.txt ] || { $(INSTALL_SITE); } || \
	  echo "metal_ops: the site cannot be built without $(DOCS_VENV); its tests will fail and say so"

browser-if-possible: | $(VENV)/test.stamp build/system-metal.stamp
	@$(if $(BROWSER_ASKED),,tools/setup.sh --if-possible $(TEST_PACKAGES))
	@[ $(VENV)/browser.stamp -nt requirements-browser.txt ] || \
	  { $(LOCKED) $(PIP_INSTALL) -r requirements-browser.txt && touch $(VENV)/browser.stamp; } || \
	  echo "metal_ops: no page can be looked at without playwright; its tests will fail and say so"

# Measuring needs the device; the pages follow from the op library and from records.
MEASURED := $(if $(filter --measure --dtypes,$(ARGS)),metal)
docs-reference: build $(MEASURED) | $(VENV)/test.stamp  ## Generate the reference pages (ARGS=--dtypes, --measure: and record dtypes, errors)
	@$(PY) -m tools.reference $(ARGS)

docs: docs-reference $(DOCS_VENV)/stamp  ## Generate the reference pages and build the site into build/site
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build -q --strict -f mkdocs.yml

NEEDS_docs := $(addprefix --,$(MEASURED))
NEEDS_docs-reference := $(NEEDS_docs)

.PHONY: docs docs-reference site-if-possible browser-if-possible pages-if-asked
