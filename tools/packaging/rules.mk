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

# On a Mac: which suites pass there, and how fast it is. Depth first: one case of each test.
mac-report: METAL_OPS_TEST_DEPTH ?= first
mac-report: build metal | $(VENV)/test.stamp  ## On a Mac: run the suites of ops and device, write build/mac-report.md
	@METAL_OPS_TEST_DEPTH=$(METAL_OPS_TEST_DEPTH) $(PY) tools/ci/mac_report.py $(ARGS)

NEEDS_release := --metal
NEEDS_mac-report := --metal
.PHONY: release mac-report

# The metadata of the editable install has the version.
$(VENV)/package.stamp: $(PKG)/_version.py
