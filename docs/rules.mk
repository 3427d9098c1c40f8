# `make docs`: the generated pages, then the site into build/site. `make test` builds the site too, and needs the browser
# of the HTML view.
DOCS_VENV := .venv-docs

$(DOCS_VENV)/stamp: requirements-docs.txt | $(VENV)/stamp
	@[ -x $(DOCS_VENV)/bin/python ] || $(PY) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/pip install --disable-pip-version-check -q -r $< && touch $@

$(VENV)/test.stamp: requirements-test.txt | $(VENV)/stamp build/system.stamp
	@$(VENV)/bin/pip install --disable-pip-version-check -q -r $< && tools/setup.sh --browser >/dev/null && touch $@

docs-reference: build metal  ## Generate the reference pages and the stub (ARGS=--measure: and measure errors anew)
	@$(PY) -m tools.reference $(ARGS)

docs: docs-reference $(DOCS_VENV)/stamp  ## Generate the reference pages and build the site into build/site
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build -q --strict -f mkdocs.yml

test: | $(DOCS_VENV)/stamp

.PHONY: docs docs-reference
