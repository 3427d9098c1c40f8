# metal_ops: every target installs missing packages, then builds the changed files. `make help` lists
# them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory $(if $(filter 0,$(MAKELEVEL)),-j$(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2))

VENV := .venv
PY := $(VENV)/bin/python
PKG := python/metal_ops
DATA ?=
ARGS ?=
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' $(PKG)/_version.py)

# An environment that has been prepared elsewhere, such as pip's while it builds a wheel: nothing is
# installed.
ifdef USE_PYTHON
PY := $(USE_PYTHON)
VENV := build/use_python
endif

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  make %-16s%s\n", $$1, $$2 }'
	@echo "Options: DATA=<folder or .npz> for nerf, GPU=1 for metal (code for NVIDIA GPUs, too), TF=2.21 for that release of TensorFlow, PEERS=1 for bench, ARGS='...' passed on, PYTHON=<version or interpreter> for the set-up."

# ---- another release of TensorFlow ----------------------------------------------------------------------------------
# make TF=2.21 <goals>: the same goals in build/tf-2.21, a copy of the sources with an environment and libraries of its own.
# In there that release is the tree's own, whatever is called. test-matrix goes through them itself.
ifneq ($(MAKECMDGOALS),test-matrix)
OTHER_RELEASE := $(if $(TF),$(filter-out $(shell tools/setup.sh --release),$(TF)))
endif
ifneq ($(OTHER_RELEASE),)
OTHER_GOALS := $(or $(MAKECMDGOALS),metal)
# A checkout without Metal kernels gets no compiler for them there.
OTHER_FLAGS := build/tensorflow/cflags $(wildcard build/metal_flags/compiler)
.PHONY: $(OTHER_GOALS) other-release
$(OTHER_GOALS): other-release ; @:
# No copy after the first line: this is make -n.
other-release:
	@tools/other_release.sh $(TF)
	@[ -e build/tf-$(TF)/build/objects -o ! -d build/tf-$(TF) ] || { $(MAKE) -C build/tf-$(TF) $(OTHER_FLAGS) && tools/other_release.sh $(TF) objects; }
	@[ ! -d build/tf-$(TF) ] || $(MAKE) -C build/tf-$(TF) $(OTHER_GOALS)
else

# ---- set-up ---------------------------------------------------------------------------------------------------------
# One step at a time, whatever -j says, and two makes take turns; who comes second finds the work done.
LOCKED = $(if $(shell command -v flock),mkdir -p build && flock -o build/setup.lock)

# Rooms name the system packages that their goals need, NEEDS_<goal>, so that the first call installs all of them, and
# those that a goal can be tried without, WANTS_<goal>: words of tools/setup.sh.
NEEDS_metal := --metal
NEEDS_test := $(if $(ARGS),,--metal)
NEEDS_test-all := $(NEEDS_test)
NEEDS_test-near := --metal
NEEDS_test-ops := --metal
NEEDS_test-shaders := --metal
NEEDS_test-release := --metal
NEEDS_test-checks := --metal
NEEDS_bench := --metal
NEEDS = $(sort $(foreach goal,$(MAKECMDGOALS),$(NEEDS_$(goal))))
WANTS = $(sort $(foreach goal,$(MAKECMDGOALS),$(WANTS_$(goal))))
SYSTEM_PACKAGES = $(NEEDS) $(if $(WANTS),--if-possible $(WANTS))

build/system.stamp: tools/setup.sh
	@tools/setup.sh $(SYSTEM_PACKAGES)
	@mkdir -p build && touch $@

build/system-metal.stamp: tools/setup.sh | build/system.stamp
	@tools/setup.sh --metal $(SYSTEM_PACKAGES)
	@mkdir -p build && touch $@

# --no-compile: Python compiles what is imported, which is a small part, unless it is told not to keep that.
PIP_INSTALL = $(PY) -m pip install --disable-pip-version-check -q $(if $(PYTHONDONTWRITEBYTECODE),,--no-compile)

ifdef USE_PYTHON
$(VENV)/stamp $(VENV)/package.stamp $(VENV)/test.stamp: | build/system.stamp
	@mkdir -p $(@D) && touch $@
else
$(VENV)/stamp: requirements.txt | build/system.stamp
	@python=$$(tools/setup.sh --python) && echo "metal_ops: creating $(VENV) with $$python" && \
	tools/setup.sh --requirements > build/requirements.txt && \
	$(LOCKED) sh -c "{ [ -x $(PY) ] || $$python -m venv $(VENV); } && $(PIP_INSTALL) -r build/requirements.txt" && touch $@

# Apart from the above, so that an edit of pyproject.toml does not recompile the world. With the packages with which
# programs read files.
$(VENV)/package.stamp: pyproject.toml requirements-programs.txt | $(VENV)/stamp
	@$(LOCKED) sh -c "$(PIP_INSTALL) --no-deps --no-build-isolation -e . && $(PIP_INSTALL) -r requirements-programs.txt" && touch $@

# Packages that users do not need: tests, style, types.
$(VENV)/test.stamp: requirements-test.txt requirements-test-no-deps.txt | $(VENV)/package.stamp
	@$(LOCKED) sh -c "$(PIP_INSTALL) -r $< && $(PIP_INSTALL) --no-deps -r $(word 2,$^)" && touch $@
endif

# TensorFlow's own compile and link flags, asked once per environment. Files and not variables, so that sources
# without TensorFlow are compiled while pip fetches it.
TF_FLAGS := build/tensorflow
TF_CFLAGS := @$(TF_FLAGS)/cflags
TF_LDFLAGS := @$(TF_FLAGS)/ldflags
$(TF_FLAGS)/cflags: tools/tensorflow_flags.py $(VENV)/stamp
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) $< $(@D)

# $(eval $(call remembered,<file>,<words>)): a file that is written when the words differ from its contents, so that its
# dependents are made anew then. While they are the same nothing is, and `make -n` says so.
define remembered
ifneq ($$(shell cat $(1) 2>/dev/null),$(2))
.PHONY: $(1)
endif
$(1):
	@mkdir -p $$(@D)
	@echo '$(2)' > $$@
endef

# The same sources give the same bytes wherever the checkout and, by the flags above, TensorFlow lie.
REPRODUCIBLE := -ffile-prefix-map=$(CURDIR)=.

# $(call link_flags,<shared object>,<exports.map>): exports the names in the map and nothing else.
ifeq ($(shell uname),Darwin)
# TensorFlow has loaded its libraries under names of its own by the time that ours are loaded.
link_flags = -Wl,-undefined,dynamic_lookup -Wl,-install_name,@rpath/$(notdir $(1)) -Wl,-rpath,@loader_path \
  $(addprefix -Wl$(comma)-exported_symbol$(comma)_,$(shell sed -n '/global:/,/local:/s/^ *\([A-Za-z_*]*\);/\1/p' $(2)))
# The oldest that TensorFlow's own wheels are for. Libraries that use Metal are for macOS 14, or for 13 with
# MACOS_OF_METAL=13.0 (kernels/metal.mk).
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
-include hostmetal/rules.mk device/rules.mk tools/sanitize/rules.mk benchmarks/rules.mk docs/rules.mk tools/packaging/rules.mk tools/bazel/rules.mk tools/gpu/rules.mk

setup: $(VENV)/package.stamp  ## Install what is missing and create .venv
	@[ "$$(git config core.hooksPath 2>/dev/null)" = tools/hooks ] || \
	  echo "metal_ops: 'git config core.hooksPath tools/hooks' has git check the subjects of your commits."

build: $(VENV)/package.stamp $(LIBRARIES)  ## Compile the CPU op library

# Rooms add to METAL_LIBRARIES; their compile rules have build/system-metal.stamp as an order-only prerequisite, so that
# who wants the CPU ops alone needs no Objective-C.
metal: build $(METAL_LIBRARIES)  ## Compile hostmetal, the Metal kernels, the shaders and the device

# ---- use ------------------------------------------------------------------------------------------------------------
nerf: build  ## Train a NeRF and leave its pictures in runs/
	@$(PY) -m metal_ops nerf train $(if $(DATA),--data "$(DATA)") $(ARGS)

# On all cores, with the slowest tests at the end; tests that ARGS names, in one process.
ALL_CORES := -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder --durations=25 --durations-min=5
PYTEST = $(PY) -m pytest $(if $(ARGS),,$(ALL_CORES))
CHOOSE = $(PY) tools/choose_tests.py
# ARGS=softshrink is all tests of that op, and ARGS='softshrink -x' these with an option.
OP := $(if $(ARGS),$(if $(wildcard kernels/$(firstword $(ARGS))/.),$(firstword $(ARGS))))
NAMED = $(if $(OP),$$($(CHOOSE) op $(OP)) $(wordlist 2,$(words $(ARGS)),$(ARGS)),$(ARGS))
# Tests that ARGS names are run with the libraries they ask for: the CPU's op library alone where that is
# enough.
TESTED := build $(if $(ARGS),metal-if-asked,metal)
# The whole suite calls most kernels.
AHEAD := $(if $(filter Darwin,$(shell uname)),,kernels-ahead)
metal-if-asked: | $(VENV)/test.stamp
	@! $(CHOOSE) needs metal $(ARGS) || $(MAKE) metal

test: $(TESTED) $(if $(ARGS),,$(AHEAD)) | $(VENV)/test.stamp  ## Run every test with the cases that show most (ARGS=<op or pytest's>: a part)
	@$(PYTEST) $(NAMED)

test-all: $(TESTED) $(if $(ARGS),,$(AHEAD)) | $(VENV)/test.stamp  ## Run every case (SHARD=2/4: the second of four parts)
	@METAL_OPS_TEST_DEPTH=all METAL_OPS_TEST_SHARD=$(SHARD) $(PYTEST) $(NAMED)

# The tests that the changed files can break, by tools/mutation/rooms.py.
BASE ?= main
test-near: build metal | $(VENV)/test.stamp  ## Run the tests near the files that differ from BASE=main
	@tests=$$($(CHOOSE) near $(BASE)) && { [ -z "$$tests" ] || $(PY) -m pytest $(ALL_CORES) $(ARGS) $$tests; }

# Parts of the suite by markers (pyproject.toml) that are worth another run under other conditions: METAL_OPS_SIMD=avx2,
# METAL_DEVICE_WRAPPER_TYPE=1, another release of TensorFlow. METAL_OPS_TEST_DEPTH=first takes one case of each test.
test-ops: MARKED = ops$(if $(METAL_OPS_SIMD), and not any_simd)
test-ops: build metal | $(VENV)/test.stamp  ## Run the tests of the ops (METAL_OPS_SIMD=avx2: on that instruction set)
test-shaders: MARKED = shaders and not compiler
test-shaders: build metal | $(VENV)/test.stamp  ## Run the tests of shaders (METAL_DEVICE_WRAPPER_TYPE=1: validated)
test-release: MARKED = release
test-release: build metal | $(VENV)/test.stamp  ## Run the tests that a release of TensorFlow can break (TF=2.21)
test-ops test-shaders test-release:
	@$(PYTEST) -m '$(MARKED)' $(ARGS) $$($(CHOOSE) files '$(MARKED)')

# The shaders of kernels/ and device/ under HOSTMETAL_CHECK=race,init,barrier. Most kernels are compiled first, some dozen at
# a time, and later parts find them in the cache.
test-checks: build metal | $(VENV)/test.stamp  ## Look for races and the like in the shaders, with small arguments (SHARD=2/4: the second of four parts)
	@$(if $(findstring --sample,$(ARGS)),,$(PY) -m tools.checks.ahead &&) $(PY) -m tools.checks $(if $(SHARD),--shard $(SHARD)) $(ARGS)

# The tests that a release of TensorFlow and a Python can break.
test-matrix:  ## Run op and device tests with all releases of TensorFlow and Pythons (TF=2.20 PYTHON=3.12: one)
	@tools/test_matrix.sh "$(TF)" "$(PYTHON)" "ops or fusion or kernels or device" $(ARGS)

bench: build metal  ## Measure against what you would use instead (PEERS=1 adds JAX and PyTorch)
	@$(PY) -m benchmarks $(if $(PEERS),--peers) $(ARGS)

# ---- habits ---------------------------------------------------------------------------------------------------------
# Macro tables of the shader library are laid out by hand.
FORMATTED = $(wildcard $(shell git ls-files -co --exclude-standard '*.cc' '*.h' '*.mm' '*.metal' ':!hostmetal/msl/lib' 2>/dev/null))

lint: $(VENV)/test.stamp $(STUBS)  ## Check style and types
	@$(VENV)/bin/clang-format --dry-run -Werror $(FORMATTED)
	@$(VENV)/bin/ruff check python tests benchmarks examples tools
	@$(VENV)/bin/ruff format --check python tests benchmarks examples tools
	@$(PY) tools/words.py
	@$(VENV)/bin/mypy

format: $(VENV)/test.stamp  ## Rewrite the sources in the house style
	@$(VENV)/bin/clang-format -i $(FORMATTED)
	@$(VENV)/bin/ruff check --fix -q python tests benchmarks examples tools; $(VENV)/bin/ruff format -q python tests benchmarks examples tools

fresh:  ## Try the README's two commands in new Debian roots (ARGS=--help: how, and which)
	@tools/fresh.sh $(ARGS)

clean:  ## Remove what was built (not .venv, not runs/)
	rm -rf build $(PKG)/*.so $(PKG)/*.metallib $(STUBS)

endif
.PHONY: help setup build metal nerf test test-all test-near test-ops test-shaders test-checks test-matrix test-release metal-if-asked bench lint format fresh clean
