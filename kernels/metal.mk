# _metal_kernels.so: the Objective-C kernels. metal_ops.metallib: their shaders. Sources are found by name.
METAL_KERNELS_SO := $(PKG)/_metal_kernels.so
METAL_KERNELS_LIB := $(PKG)/metal_ops.metallib
METAL_LIBRARIES += $(METAL_KERNELS_SO) $(METAL_KERNELS_LIB)

# One list of flags for both platforms, which also builds other people's ops. Files and not variables: building the
# CPU ops alone does not need the compiler.
METAL_FLAGS := build/metal_flags
$(METAL_FLAGS)/compiler: python/metal_ops/build/flags.py $(METAL_FLAGS)/macos | $(VENV)/stamp build/system-metal.stamp
	@$(PY) $< $(@D)

# make metal MACOS_OF_METAL=13.0: for that one, without bfloat16, which its shaders do not have. flags.py reads it, and
# takes a default where it is not set. The file changes when the word does, and then everything is made anew.
export MACOS_OF_METAL
$(eval $(call remembered,$(METAL_FLAGS)/macos,$(MACOS_OF_METAL)))

# Metal on this platform: the runtime beside the library on Linux, a framework on macOS.
ifneq ($(shell uname),Darwin)
METAL_RUNTIME := $(PKG)/libhostmetal.so
METAL_INCLUDED := -include hostmetal/protocols_once.h
METAL_CHECK_LINK := -Wl,-z,defs
endif

# Sources that the device's library has a copy of.
METAL_SHARED_MM := $(wildcard kernels/runtime/*.mm kernels/gemm/*.mm) \
  $(filter-out %_metal.mm,$(wildcard kernels/tensorflow/*.mm))
METAL_MM := $(METAL_SHARED_MM) $(wildcard kernels/*/*_metal.mm)
# Declarations of ops, and argument checks, which the kernels of all devices share, are compiled for _metal_ops.so
# already.
METAL_CC := $(wildcard kernels/*/*_op.cc)
METAL_OBJ := $(METAL_MM:%.mm=build/metal_so/%.o) $(METAL_CC:%.cc=build/%.o)

build/metal_so/%.o: %.mm $(TF_FLAGS)/cflags $(METAL_FLAGS)/compiler
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$$(cat $(METAL_FLAGS)/compiler) @$(METAL_FLAGS)/cflags -O2 -g1 -fvisibility=hidden -Wall -Wextra \
	  -Wno-unused-parameter $(METAL_INCLUDED) -I. -MMD -MP $(REPRODUCIBLE) $(CXXFLAGS) $(TF_CFLAGS) -c $< -o $@

$(METAL_KERNELS_SO): $(METAL_OBJ) $(METAL_RUNTIME) kernels/exports.map
	@echo "  link    $@"
	@$$(cat $(METAL_FLAGS)/compiler) -shared $(METAL_OBJ) -o $@.tmp @$(METAL_FLAGS)/ldflags $(TF_LDFLAGS) \
	  $(METAL_CHECK_LINK) $(call link_flags,$@,kernels/exports.map) $(LDFLAGS) && mv $@.tmp $@

-include $(METAL_OBJ:.o=.d)

# On Linux hostmetal/msl/rules.mk compiles the shaders.
ifeq ($(shell uname),Darwin)
XCODE_AIR := $(patsubst %.metal,build/%.air,$(wildcard kernels/*/*.metal))

build/%.air: %.metal $(wildcard kernels/*/*.h device/kernels/*.h device/kernels/nn/*.h) $(METAL_FLAGS)/compiler
	@mkdir -p $(@D)
	@echo "  metal   $<"
	@xcrun -sdk macosx metal $$(cat $(METAL_FLAGS)/shader_flags) -c -I. $< -o $@

$(METAL_KERNELS_LIB): $(XCODE_AIR)
	@echo "  link    $@"
	@xcrun -sdk macosx metallib $(XCODE_AIR) -o $@
endif

new-op:  ## Copy the template op to a new name: make new-op NAME=my_op
	@tools/new_op.py "$(NAME)"

.PHONY: new-op
