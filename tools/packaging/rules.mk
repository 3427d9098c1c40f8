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
