# metal_ops.metallib: the shaders of kernels/*/*.metal. $(METAL) compiles any other shader the same way.
METAL := $(PY) python/metal_ops/metal
METALLIB := $(PKG)/metal_ops.metallib
METAL_SRC := $(wildcard kernels/*/*.metal)
METAL_AIR := $(METAL_SRC:%.metal=build/%.air)
METALLIB_PARTS := $(wildcard hostmetal/msl/*.h hostmetal/msl/lib/* python/metal_ops/metal/*.py)

ifneq ($(METAL_SRC),)
METAL_LIBRARIES += $(METALLIB)
endif

# make metal GPU=1: code for NVIDIA GPUs as well, GPU=sm_90 for one kind alone. The file changes when the words do, and then
# everything is made anew.
METAL_GPU := $(if $(GPU),--gpu=$(if $(filter sm_%,$(GPU)),$(GPU),sm_80$(comma)sm_90))
METAL_GPU_STAMP := build/metal_gpu
$(eval $(call remembered,$(METAL_GPU_STAMP),$(METAL_GPU)))
METALLIB_PARTS += $(METAL_GPU_STAMP)

# -Werror is left out on purpose: a newer clang may warn about more.
build/%.air: %.metal $(METALLIB_PARTS) | $(VENV)/stamp build/system-metal.stamp
	@mkdir -p $(@D)
	@echo "  metal   $<"
	@$(METAL) -c -I. -Wall $(METAL_GPU) -MD -MF build/$*.air.d $< -o $@

$(METALLIB): $(METAL_AIR)
	@echo "  link    $@"
	@$(METAL) metallib $(METAL_AIR) -o $@

-include $(METAL_AIR:.air=.air.d)
