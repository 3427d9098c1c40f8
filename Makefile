# metal_ops: every target installs what it is missing, then builds what changed. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory -j$(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

VENV := .venv
PY := $(VENV)/bin/python
PKG := python/metal_ops
DATA ?=
ARGS ?=
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' $(PKG)/_version.py)

# An environment that somebody else has prepared, such as pip's while it builds a wheel: nothing is installed.
ifdef USE_PYTHON
PY := $(USE_PYTHON)
VENV := build/use_python
endif

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  make %-16s%s\n", $$1, $$2 }'
	@echo "Options: DATA=<folder or .npz> for nerf, PEERS=1 for bench, ARGS='...' passed on, PYTHON=<interpreter> for the set-up."

# ---- set-up ---------------------------------------------------------------------------------------------------------
build/system.stamp: tools/setup.sh
	@tools/setup.sh
	@mkdir -p build && touch $@

build/system-metal.stamp: tools/setup.sh | build/system.stamp
	@tools/setup.sh --metal
	@mkdir -p build && touch $@

ifdef USE_PYTHON
$(VENV)/stamp $(VENV)/package.stamp: | build/system.stamp
	@mkdir -p $(@D) && touch $@
else
$(VENV)/stamp: requirements.txt | build/system.stamp
	@python=$$(tools/setup.sh --python) && echo "metal_ops: creating $(VENV) with $$python" && \
	{ [ -x $(PY) ] || $$python -m venv $(VENV); } && \
	$(VENV)/bin/pip install --disable-pip-version-check -q -r requirements.txt && touch $@

# Apart from the above, so that an edit of pyproject.toml does not recompile the world.
$(VENV)/package.stamp: pyproject.toml | $(VENV)/stamp
	@$(VENV)/bin/pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e . && touch $@
endif

# TensorFlow's own compile and link flags, asked once an environment.
build/tf.mk: $(VENV)/stamp
	@mkdir -p build
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -c "import tensorflow as tf; s = tf.sysconfig; \
	print('TF_CFLAGS :=', ' '.join(f.replace('-I', '-isystem ') for f in s.get_compile_flags())); \
	print('TF_LDFLAGS :=', ' '.join(s.get_link_flags()))" > $@

ifneq ($(filter-out help clean setup,$(or $(MAKECMDGOALS),help)),)
# Now and not by the rule: when an included file cannot be made, make goes on and ends with a riddle.
ifeq ($(wildcard build/system.stamp),)
$(shell tools/setup.sh >&2 && mkdir -p build && touch build/system.stamp)
$(if $(wildcard build/system.stamp),,$(error see above))
endif
-include build/tf.mk
endif

# The same sources give the same bytes wherever the checkout and TensorFlow lie.
REPRODUCIBLE = -ffile-prefix-map=$(CURDIR)=. -ffile-prefix-map=$(firstword $(filter /%,$(TF_CFLAGS)))=tensorflow

# $(call link_flags,<shared object>,<exports.map>): exports what the map says and nothing else.
ifeq ($(shell uname),Darwin)
# TensorFlow has loaded its libraries under names of its own by the time that ours are loaded.
link_flags = -Wl,-undefined,dynamic_lookup -Wl,-install_name,@rpath/$(notdir $(1)) -Wl,-rpath,@loader_path \
  $(addprefix -Wl$(comma)-exported_symbol$(comma)_,$(shell sed -n '/global:/,/local:/s/^ *\([A-Za-z_*]*\);/\1/p' $(2)))
# The oldest that TensorFlow's own wheels are for; shaders say theirs in flags.py.
MACOSX_DEPLOYMENT_TARGET ?= 12.0
export MACOSX_DEPLOYMENT_TARGET
HIGHWAY := $(shell brew --prefix highway 2>/dev/null)
HIGHWAY_CFLAGS := -isystem $(HIGHWAY)/include
HIGHWAY_LDFLAGS := -L$(HIGHWAY)/lib
else
link_flags = -Wl,--version-script,$(2) -Wl,-rpath,'$$ORIGIN'
endif
comma := ,

include kernels/rules.mk
-include hostmetal/rules.mk device/rules.mk benchmarks/rules.mk docs/rules.mk tools/packaging/rules.mk tools/bazel/rules.mk

setup: $(VENV)/package.stamp  ## Install what is missing and create .venv

build: $(VENV)/package.stamp $(LIBRARIES)  ## Compile the CPU op library

# Rooms add to METAL_LIBRARIES; their compile rules have build/system-metal.stamp as an order-only prerequisite, so that
# who wants the CPU ops alone needs no Objective-C.
metal: build $(METAL_LIBRARIES)  ## Compile hostmetal, the Metal kernels, the shaders and the device

# ---- use ------------------------------------------------------------------------------------------------------------
nerf: build  ## Train a NeRF and leave its pictures in runs/
	@$(PY) -m metal_ops nerf train $(if $(DATA),--data "$(DATA)") $(ARGS)

test: build metal | $(VENV)/test.stamp  ## Run the whole test suite
	@$(PY) -m pytest $(if $(ARGS),,-n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder) $(ARGS)

bench: build metal  ## Measure against what you would use instead (PEERS=1 adds JAX and PyTorch)
	@$(PY) -m benchmarks $(if $(PEERS),--peers) $(ARGS)

# ---- habits ---------------------------------------------------------------------------------------------------------
# Macro tables of the shader library are laid out by hand.
FORMATTED = $(wildcard $(shell git ls-files -co --exclude-standard '*.cc' '*.h' '*.mm' '*.metal' ':!hostmetal/msl/lib' 2>/dev/null))

lint: $(VENV)/package.stamp  ## Check style and types
	@$(VENV)/bin/clang-format --dry-run -Werror $(FORMATTED)
	@$(VENV)/bin/ruff check python tests benchmarks examples tools
	@$(VENV)/bin/ruff format --check python tests benchmarks examples tools
	@$(VENV)/bin/mypy

format: $(VENV)/stamp  ## Rewrite the sources in the house style
	@$(VENV)/bin/clang-format -i $(FORMATTED)
	@$(VENV)/bin/ruff check --fix -q python tests benchmarks examples tools; $(VENV)/bin/ruff format -q python tests benchmarks examples tools

clean:  ## Remove what was built (not .venv, not runs/)
	rm -rf build $(PKG)/*.so $(PKG)/*.metallib

.PHONY: help setup build metal nerf test bench lint format clean
