# _metal_ops.so: ops, shape functions, CPU kernels and the fusion pass. Sources are found by name: a new op needs no line here.
OPS_SO := $(PKG)/_metal_ops.so
LIBRARIES += $(OPS_SO)

OPS_SRC := $(wildcard ops/*.cc graph/*.cc graph/patterns/*.cc kernels/*/*_op.cc kernels/*/*_cpu.cc kernels/*/*_simd.cc)
OPS_OBJ := $(OPS_SRC:%.cc=build/%.o)

# -DNDEBUG: TensorFlow's headers lay out classes differently without it. No fast-math: numerics are a contract.
OPS_CXXFLAGS = -std=c++17 -O3 -DNDEBUG -fPIC -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter \
                -ffp-contract=off -I. $(HEADERS_FOUND) -MP $(REPRODUCIBLE) $(HIGHWAY_CFLAGS)
HEADERS_FOUND = -MMD
# What Highway's foreach_target.h includes counts as a system header, our -inl.h among it.
build/kernels/%_simd.o: HEADERS_FOUND = -MD

# TensorFlow's headers are most of what compiling a file takes, so they are compiled once: what is left is a third.
# Sources include what they use all the same; Bazel compiles without, and so does ccache, which shares no results
# between checkouts that have headers of their own.
ifeq ($(shell uname)$(findstring ccache,$(CXX) $(realpath $(shell command -v $(firstword $(CXX))))),Linux)
PRECOMPILED := $(TF_FLAGS)/headers.h
endif
PRECOMPILED_HEADERS := common_shape_fns op op_kernel shape_inference

# Of kernels/ the adapter alone names TensorFlow. All else is plain C++: it is compiled while pip fetches TensorFlow, and it
# is the same for each of its releases. Headers compiled once are no gain there: to load them takes 0.9 s a file, which is 1.2 s else.
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

-include $(OPS_OBJ:.o=.d)

-include kernels/metal.mk
