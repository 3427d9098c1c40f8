# Wheels: dist/tensorflow_metal_ops-*.whl with the CPU ops and, on Linux, dist/tensorflow_metal_ops_hostmetal-*.whl.
# For other machines: every instruction set, and the code of every kernel.
wheel:  ## Build the wheels into dist/
	@$(MAKE) METAL_OPS_TARGETS=all build metal
	@$(PY) tools/packaging/make_wheels.py dist

wheel-check: wheel | $(VENV)/test.stamp  ## Build wheels from scratch twice, install them into new environments, test them there
	@$(PY) -m pytest tests/packaging/check_wheels.py $(ARGS)

NEEDS_wheel := --metal
NEEDS_wheel-check := --metal
.PHONY: wheel wheel-check

# Takes hours from nothing: it builds for each release of TensorFlow.
release: | $(VENV)/test.stamp  ## Make all wheels, try each, write checksums and the page to take them from (ARGS=--trial)
	@$(PY) tools/packaging/release.py $(ARGS)

NEEDS_release := --metal
.PHONY: release

# The metadata of the editable install has the version.
$(VENV)/package.stamp: $(PKG)/_version.py
