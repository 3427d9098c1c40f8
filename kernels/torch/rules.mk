# _metal_ops_torch.so: the declared ops and their CPU kernels for PyTorch. The objects of kernels are those of
# _metal_ops.so; TensorFlow is not needed. One library serves each release of PyTorch from TORCH_OLDEST on.
TORCH_SO := $(PKG)/_metal_ops_torch.so
TORCH_OLDEST := 2.10

# An environment of its own, as PyTorch is a large download: TORCH_VENV=<folder> takes another that has it.
TORCH_VENV ?= .venv-torch
TORCH_PY := $(TORCH_VENV)/bin/python

.venv-torch/stamp: requirements-torch.txt
	@python3 -m venv .venv-torch && .venv-torch/bin/pip install -q -r $< && touch $@

TORCH_FOLDER := $(TORCH_PY) -c 'from importlib.util import find_spec; print(find_spec("torch").submodule_search_locations[0])'
TORCH_NEEDS := $(if $(filter .venv-torch,$(TORCH_VENV)),.venv-torch/stamp)
# 0x020A000000000000: a byte each for the release's two numbers.
TORCH_TARGET = $(shell printf '0x%02X%02X000000000000' $(subst ., ,$(TORCH_OLDEST)))

build/kernels/torch/%.o: kernels/torch/%.cc kernels/torch/rules.mk $(TORCH_NEEDS) | build/system.stamp
	@mkdir -p $(@D)
	@echo "  compile $<"
	@torch=$$($(TORCH_FOLDER)) && \
	  $(CXX) $(OPS_CXXFLAGS) $(CXXFLAGS) -DTORCH_TARGET_VERSION=$(TORCH_TARGET) -isystem "$$torch/include" -c $< -o $@

TORCH_OBJ := $(PLAIN_SRC:%.cc=build/%.o) build/kernels/torch/adapter.o
$(TORCH_SO): $(TORCH_OBJ) kernels/torch/exports.map
	@echo "  link    $@"
	@torch=$$($(TORCH_FOLDER)) && \
	  $(CXX) -shared $(TORCH_OBJ) -o $@.tmp $(TORCH_LDFLAGS) $(HIGHWAY_LDFLAGS) -lhwy -L"$$torch/lib" -ltorch_cpu \
	  $(call link_flags,$@,kernels/torch/exports.map) $(LDFLAGS) && mv $@.tmp $@
# An op library of TensorFlow's in the same process has functions of the same names.
TORCH_LDFLAGS := $(if $(filter Darwin,$(shell uname)),,-Wl,-Bsymbolic)

torch: $(TORCH_SO)  ## Compile the ops for PyTorch (TORCH_VENV=<folder>: its environment)

test-torch: torch  ## Run the tests of PyTorch's ops, in its own environment
	@PYTHONPATH=python $(TORCH_PY) -m pytest -c tests/torch/pytest.ini --rootdir=. tests/torch $(ARGS)

.PHONY: torch test-torch

-include build/kernels/torch/adapter.d
