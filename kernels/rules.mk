# _metal_ops.so: ops, shape functions and CPU kernels. Sources are found by name, so a new op needs no line here.
OPS_SO := $(PKG)/_metal_ops.so
LIBRARIES += $(OPS_SO)

OPS_SRC := $(wildcard ops/*.cc kernels/*/*_cpu.cc kernels/*/*_simd.cc kernels/*/*_checks.cc)
OPS_OBJ := $(OPS_SRC:%.cc=build/%.o)

# -DNDEBUG: TensorFlow's headers lay out classes differently without it. No fast-math: numerics are a contract.
OPS_CXXFLAGS := -std=c++17 -O3 -DNDEBUG -fPIC -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter \
                -ffp-contract=off -I. -MMD -MP

build/%.o: %.cc build/tf.mk
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(CXX) $(OPS_CXXFLAGS) $(CXXFLAGS) $(TF_CFLAGS) -c $< -o $@

$(OPS_SO): $(OPS_OBJ)
	@echo "  link    $@"
	@$(CXX) -shared $(OPS_OBJ) -o $@.tmp $(TF_LDFLAGS) -lhwy $(LDFLAGS) && mv $@.tmp $@

-include $(OPS_OBJ:.o=.d)

-include kernels/metal.mk
