# metal_ops.metallib: the shaders of kernels/*/*.metal, for the CPU. $(METAL) compiles any other shader the same way.
METAL := $(PY) python/metal_ops/metal
METALLIB := $(PKG)/metal_ops.metallib
METAL_SRC := $(wildcard kernels/*/*.metal)
METAL_AIR := $(METAL_SRC:%.metal=build/%.air)
METALLIB_PARTS := $(wildcard hostmetal/msl/*.h hostmetal/msl/lib/* python/metal_ops/metal/*.py)

ifneq ($(METAL_SRC),)
METAL_LIBRARIES += $(METALLIB)
endif

# -Werror is left out on purpose: a newer clang may warn about more.
build/%.air: %.metal $(METALLIB_PARTS) | $(VENV)/stamp build/system-metal.stamp
	@mkdir -p $(@D)
	@echo "  metal   $<"
	@$(METAL) -c -I. -Wall -MD -MF build/$*.air.d $< -o $@

$(METALLIB): $(METAL_AIR)
	@echo "  link    $@"
	@$(METAL) metallib $(METAL_AIR) -o $@

-include $(METAL_AIR:.air=.air.d)
