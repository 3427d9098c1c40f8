# _metal_ops.so: ops, shape functions, CPU kernels and the fusion pass. Sources are found by name: a new op needs no line here.
OPS_SO := $(PKG)/_metal_ops.so
LIBRARIES += $(OPS_SO)

OPS_SRC := $(wildcard ops/*.cc graph/*.cc graph/patterns/*.cc kernels/*/*_op.cc kernels/*/*_cpu.cc kernels/*/*_simd.cc)
OPS_OBJ := $(OPS_SRC:%.cc=build/%.o)

# -DNDEBUG: TensorFlow's headers lay out classes differently without it. No fast-math: numerics are a contract.
OPS_CXXFLAGS = -std=c++17 $(OPS_OPTIMISE) -DNDEBUG -fPIC -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter \
                -ffp-contract=off -I. $(HEADERS_FOUND) -MP $(REPRODUCIBLE) $(HIGHWAY_CFLAGS)
HEADERS_FOUND = -MMD
# Kernels are in the files of vectors and in _cpu.cc; all else runs once per graph or once per call.
OPS_OPTIMISE = -O1
build/kernels/%_simd.o build/kernels/%_cpu.o: OPS_OPTIMISE = -O3
# Files that Highway's foreach_target.h includes count as system headers, our -inl.h among them.
build/kernels/%_simd.o: HEADERS_FOUND = -MD

# CPU kernels are compiled for the best instruction set of this machine's processor and as plain C++ (EMU128), which runs
# anywhere; METAL_OPS_TARGETS=all adds those of other processors, as wheels and packs for other machines have it. Names of bits:
# kernels/simd/simd_targets.h.
ifeq ($(shell uname -m)$(if $(GPU),all)$(filter all,$(METAL_OPS_TARGETS)),x86_64)
PROCESSOR := $(shell sed -n '/^flags/{p;q}' /proc/cpuinfo 2>/dev/null)
has = $(if $(filter-out $(PROCESSOR),$(1)),,yes)
ifeq ($(call has,avx512f avx512bw avx512dq avx512vl avx512cd),yes)
SIMD_TARGETS := avx3 emu128
SIMD_DEFINES := -DMETAL_OPS_TARGETS_LEFT_OUT=0xA00
else ifeq ($(call has,avx2 fma bmi1 bmi2 f16c abm),yes)
SIMD_TARGETS := avx2 emu128
SIMD_DEFINES := -DMETAL_OPS_TARGETS_LEFT_OUT=0x980
endif
endif
SIMD_STAMP := build/simd_targets
$(eval $(call remembered,$(SIMD_STAMP),$(or $(SIMD_TARGETS),all)))
SIMD_OBJ := $(patsubst %.cc,build/%.o,$(wildcard kernels/*/*_simd.cc))
$(SIMD_OBJ): OPS_CXXFLAGS += $(SIMD_DEFINES)
$(SIMD_OBJ): $(SIMD_STAMP)

# TensorFlow's headers are most of the time of compiling a file, so they are compiled once: a third is left.
# Sources include the headers they use all the same; Bazel compiles without, and so does ccache, which shares no
# results between checkouts that have headers of their own.
ifeq ($(shell uname)$(findstring ccache,$(CXX) $(realpath $(shell command -v $(firstword $(CXX))))),Linux)
PRECOMPILED := $(TF_FLAGS)/headers.h
endif
PRECOMPILED_HEADERS := common_shape_fns op op_kernel shape_inference

# In kernels/, the adapter alone names TensorFlow. All else is plain C++: it is compiled while pip fetches TensorFlow,
# and it is the same for each of its releases. Headers compiled once are no gain there: to load them takes 0.9 s a file,
# which is 1.2 s else.
PLAIN_SRC := $(filter-out kernels/tensorflow/%,$(wildcard kernels/*/*_op.cc kernels/*/*_cpu.cc kernels/*/*_simd.cc))
$(PLAIN_SRC:%.cc=build/%.o): build/%.o: %.cc | build/system.stamp
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(CXX) $(OPS_CXXFLAGS) $(CXXFLAGS) -c $< -o $@

build/%.o: %.cc $(TF_FLAGS)/cflags $(PRECOMPILED:=.gch)
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(CXX) $(OPS_CXXFLAGS) $(CXXFLAGS) $(OPS_DEFINES) $(TF_CFLAGS) $(addprefix -include ,$(PRECOMPILED)) -c $< -o $@

$(TF_FLAGS)/headers.h.gch: $(TF_FLAGS)/cflags
	@echo "  compile TensorFlow's headers"
	@printf '#include "tensorflow/core/framework/%s.h"\n' $(PRECOMPILED_HEADERS) > $(@:.gch=)
	@$(CXX) $(filter-out -MMD -MP,$(OPS_CXXFLAGS)) $(CXXFLAGS) $(TF_CFLAGS) -x c++-header $(@:.gch=) -o $@

build/ops/build_info.o: $(PKG)/_version.py
build/ops/build_info.o: OPS_DEFINES = -DMETAL_OPS_VERSION='"$(VERSION)"'

# Highway is looked for beside the library first, where the wheel has it.
$(OPS_SO): $(OPS_OBJ) ops/exports.map
	@echo "  link    $@"
	@$(CXX) -shared $(OPS_OBJ) -o $@.tmp $(TF_LDFLAGS) $(HIGHWAY_LDFLAGS) -lhwy $(call link_flags,$@,ops/exports.map) \
	  $(LDFLAGS) && mv $@.tmp $@

# Types for type checkers and editors: of the raw ops as the library defines them, and the names in ops/. Files that no
# declaration reads make no new ones: TensorFlow's import takes 3 s. -P: names beside the script are not the modules
# that TensorFlow means.
RAW_STUB := $(PKG)/raw_ops.pyi
STUBS := $(RAW_STUB) $(PKG)/ops/__init__.pyi
LIBRARIES += $(STUBS)
$(RAW_STUB): tools/reference/stub.py $(wildcard ops/*.cc kernels/*/*_op.cc kernels/*/*.h kernels/runtime/*.cc kernels/tensorflow/*.cc) | $(OPS_SO)
	@$(PY) -P $< $(OPS_SO) $@

$(eval $(call remembered,build/op_files,$(notdir $(sort $(wildcard $(PKG)/ops/*.py)))))
$(PKG)/ops/__init__.pyi: tools/reference/stub.py build/op_files | $(VENV)/stamp
	@$(PY) -P $< $(@D) $@

-include $(OPS_OBJ:.o=.d)

-include kernels/torch/rules.mk
-include kernels/metal.mk
