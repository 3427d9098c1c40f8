# The op libraries under AddressSanitizer and UBSan, part of `make sanitize`. TensorFlow and Python stay as they are; its
# tensors come from malloc, so that a kernel's step beyond one is seen.
#
# TSan covers hostmetal and the device with its kernels by their own programs (hostmetal/rules.mk, device/rules.mk):
# TensorFlow's locks are not instrumented, and in its process every hand-over of a tensor would look like a race.
ifneq ($(shell uname),Darwin)

asan_objects = $(patsubst %,build/sanitize/address/%.o,$(basename $(1)))
SANITIZED := build/sanitize/python/metal_ops
ASAN_SHARED := -shared -shared-libasan -pthread $(SANITIZE_address)
ASAN_OPS_FLAGS = $(OPS_CXXFLAGS) $(TF_CFLAGS) $(addprefix -include ,$(ASAN_FIRST))

# TensorFlow's headers are compiled once, as ops/rules.mk does for the ordinary build, and not beside ccache either.
ASAN_HEADERS := build/sanitize/address/headers.h
ifeq ($(findstring ccache,$(OBJCXX) $(realpath $(shell command -v $(firstword $(OBJCXX))))),)
ASAN_PRECOMPILED := $(ASAN_HEADERS).pch
endif
ASAN_FIRST := $(if $(ASAN_PRECOMPILED),$(ASAN_HEADERS),tools/sanitize/absl.h)
$(ASAN_HEADERS).pch: ASAN_FIRST := tools/sanitize/absl.h
$(ASAN_HEADERS).pch: tools/sanitize/absl.h $(TF_FLAGS)/cflags | build/sanitize/runtime.stamp
	@mkdir -p $(@D)
	@echo "  compile TensorFlow's headers (address)"
	@printf '#include "%s"\n' tools/sanitize/absl.h $(PRECOMPILED_HEADERS:%=tensorflow/core/framework/%.h) > $(@:.pch=)
	@$(OBJCXX) $(filter-out -MMD -MP,$(ASAN_OPS_FLAGS)) $(SANITIZE_COMMON) $(SANITIZE_address) -x c++-header $(@:.pch=) -o $@

# The only instruction set is plain C++, where every access is checked. Conversions of numbers out of range are
# Highway's: their results are thrown away, as processors' instructions, which it stands for, give something, too. The
# other checks left out are a third of the time of compiling these files, and AddressSanitizer ends the process at a
# null pointer, too.
$(call asan_objects,$(wildcard kernels/*/*_simd.cc)): ASAN_FIRST :=
ASAN_TARGETS := -DHWY_COMPILE_ONLY_EMU128
$(call asan_objects,$(wildcard kernels/*/*_simd.cc)): ASAN_OPS_FLAGS += $(ASAN_TARGETS)
$(call asan_objects,$(wildcard kernels/*/*_simd.cc)): SANITIZE_address += -fno-sanitize=float-cast-overflow,null,alignment,object-size
# Code for AVX-512 alone, LookupDot, or for its products of bytes, ByteDot, is compiled for these as well: all of
# Highway's targets are off but bits 8, or 7, and 61. tools/sanitize/run.sh says which of both runs.
ifeq ($(shell uname -m),x86_64)
# The choice between instruction sets knows those of all files.
$(call asan_objects,kernels/simd/simd_target_simd.cc): ASAN_TARGETS :=
$(call asan_objects,kernels/quantized_matmul/quantized_matmul_simd.cc): ASAN_TARGETS := -DHWY_DISABLED_TARGETS=0x1FFFFFFFFFFFFEFF
$(call asan_objects,kernels/quantized_matmul/dynamic_matmul_simd.cc): ASAN_TARGETS := -DHWY_DISABLED_TARGETS=0x1FFFFFFFFFFFFF7F
endif

$(foreach room,ops graph kernels,build/sanitize/address/$(room)/%.o): HOSTMETAL_CXXFLAGS = $(ASAN_OPS_FLAGS)
build/sanitize/address/ops/build_info.o: HOSTMETAL_CXXFLAGS = $(ASAN_OPS_FLAGS) -DMETAL_OPS_VERSION='"$(VERSION)"'
build/sanitize/address/tests/sanitize/%.o: HOSTMETAL_CXXFLAGS = $(ASAN_OPS_FLAGS)

ASAN_OPS := $(call asan_objects,$(OPS_SRC))
ASAN_KERNELS := $(call asan_objects,$(METAL_MM) $(METAL_CC))
ASAN_DEVICE := $(call asan_objects,$(DEVICE_SRC))
ASAN_HOSTMETAL := $(call asan_objects,$(HOSTMETAL_SRC))
$(sort $(ASAN_OPS) $(ASAN_KERNELS) $(ASAN_DEVICE)) build/sanitize/address/tests/sanitize/planted_ops.o: $(TF_FLAGS)/cflags
$(sort $(filter-out %_simd.o,$(ASAN_OPS))) build/sanitize/address/tests/sanitize/planted_ops.o: $(ASAN_PRECOMPILED)
-include $(sort $(ASAN_OPS:.o=.d) $(ASAN_KERNELS:.o=.d) $(ASAN_DEVICE:.o=.d))

$(SANITIZED)/_metal_ops.so: $(ASAN_OPS)
	@$(OBJCXX) $(ASAN_SHARED) $^ -o $@.tmp $(TF_LDFLAGS) -lhwy $(call link_flags,$@,ops/exports.map) && mv $@.tmp $@

$(SANITIZED)/libhostmetal.so: $(ASAN_HOSTMETAL)
	@$(OBJCXX) $(ASAN_SHARED) $^ -o $@.tmp -Wl,-soname,libhostmetal.so -Wl,-Bsymbolic-functions \
	  -Wl,--version-script,hostmetal/src/exports.map $(HOSTMETAL_LIBS) && mv $@.tmp $@

$(SANITIZED)/_metal_kernels.so: $(ASAN_KERNELS) $(SANITIZED)/libhostmetal.so
	@$(OBJCXX) $(ASAN_SHARED) $(ASAN_KERNELS) -o $@.tmp -L$(@D) $(HOSTMETAL_LDFLAGS) $(TF_LDFLAGS) \
	  $(call link_flags,$@,kernels/exports.map) && mv $@.tmp $@

$(SANITIZED)/libmetal_device.so: $(ASAN_DEVICE) $(SANITIZED)/libhostmetal.so
	@$(OBJCXX) $(ASAN_SHARED) $(ASAN_DEVICE) -o $@.tmp -Wl,-soname,libmetal_device.so -L$(@D) $(HOSTMETAL_LDFLAGS) \
	  $(TF_LDFLAGS) -l:libtensorflow_cc.so.2 $(call link_flags,$@,device/exports.map) && mv $@.tmp $@

# An op library with planted mistakes: those that are not found in it would not be found in ours.
build/sanitize/python/planted_ops.so: build/sanitize/address/tests/sanitize/planted_ops.o
	@$(OBJCXX) $(ASAN_SHARED) $^ -o $@ $(TF_LDFLAGS)

build/sanitize/thread/planted_race: build/sanitize/thread/tests/sanitize/planted_race.o $(patsubst %,build/sanitize/thread/%.o,$(basename $(HOSTMETAL_SRC)))
	@$(OBJCXX) -pthread $(SANITIZE_thread) $^ -o $@ $(HOSTMETAL_LIBS)

SANITIZED_FILES := $(addprefix $(SANITIZED)/,_metal_ops.so libhostmetal.so _metal_kernels.so libmetal_device.so) \
  build/sanitize/python/planted_ops.so build/sanitize/thread/planted_race

$(SANITIZED_FILES): | $(SANITIZED)/.
$(SANITIZED)/.:
	@mkdir -p $@

# The package beside the instrumented libraries: Python files and shaders are copies, libraries are not.
.PHONY: sanitize-ops
sanitize: sanitize-ops
NEEDS_sanitize-ops := --metal --sanitize
sanitize-ops: $(SANITIZED_FILES) $(METALLIB) $(DEVICE_METALLIB) | $(VENV)/test.stamp  ## Run op tests under the sanitizers, part of sanitize
	@cd $(PKG) && find . -name '*.py' -o -name '*.metallib' -o -name 'view.*' | xargs cp -uL --parents -t $(CURDIR)/$(SANITIZED)
	@tools/sanitize/run.sh
endif
