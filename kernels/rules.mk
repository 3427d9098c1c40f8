# _metal_ops.so: ops, shape functions, CPU kernels and the fusion pass. Sources are found by name: a new op needs no line here.
OPS_SO := $(PKG)/_metal_ops.so
LIBRARIES += $(OPS_SO)

OPS_SRC := $(wildcard ops/*.cc graph/*.cc graph/patterns/*.cc kernels/*/*_cpu.cc kernels/*/*_simd.cc kernels/*/*_checks.cc)
OPS_OBJ := $(OPS_SRC:%.cc=build/%.o)

# -DNDEBUG: TensorFlow's headers lay out classes differently without it. No fast-math: numerics are a contract.
OPS_CXXFLAGS = -std=c++17 -O3 -DNDEBUG -fPIC -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter \
                -ffp-contract=off -I. $(HEADERS_FOUND) -MP $(REPRODUCIBLE) $(HIGHWAY_CFLAGS)
HEADERS_FOUND = -MMD
# What Highway's foreach_target.h includes counts as a system header, our -inl.h among it.
build/kernels/%_simd.o: HEADERS_FOUND = -MD

build/%.o: %.cc build/tf.mk
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(CXX) $(OPS_CXXFLAGS) $(CXXFLAGS) $(TF_CFLAGS) -c $< -o $@

build/ops/build_info.o: $(PKG)/_version.py
build/ops/build_info.o: OPS_CXXFLAGS += -DMETAL_OPS_VERSION='"$(VERSION)"'

# Highway is looked for beside the library first, where the wheel has it.
$(OPS_SO): $(OPS_OBJ) ops/exports.map
	@echo "  link    $@"
	@$(CXX) -shared $(OPS_OBJ) -o $@.tmp $(TF_LDFLAGS) $(HIGHWAY_LDFLAGS) -lhwy $(call link_flags,$@,ops/exports.map) \
	  $(LDFLAGS) && mv $@.tmp $@

-include $(OPS_OBJ:.o=.d)

-include kernels/metal.mk
