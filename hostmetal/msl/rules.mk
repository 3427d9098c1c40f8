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

# A build here makes the code of a kernel when a program asks for it, and keeps it (METAL_OPS_CACHE). METAL_OPS_TARGETS=all makes
# all of it now, for every processor: packages for other machines have that, and so has GPU=1, whose packs go to some.
METAL_DEFERRED := $(if $(or $(GPU),$(filter all,$(METAL_OPS_TARGETS))),,--deferred)
# Libraries name the objects of this checkout: where it has been moved, they are made anew.
METAL_DEFERRED_STAMP := build/metal_deferred
$(eval $(call remembered,$(METAL_DEFERRED_STAMP),$(METAL_DEFERRED) $(if $(METAL_DEFERRED),$(CURDIR))))
METALLIB_PARTS += $(METAL_DEFERRED_STAMP)

# -Werror is left out on purpose: a newer clang may warn about more.
build/%.air: %.metal $(METALLIB_PARTS) | $(VENV)/stamp build/system-metal.stamp
	@mkdir -p $(@D)
	@echo "  metal   $<"
	@$(METAL) -c -I. -Wall $(METAL_GPU) $(METAL_DEFERRED) -MD -MF build/$*.air.d $< -o $@

$(METALLIB): $(METAL_AIR)
	@echo "  link    $@"
	@$(METAL) metallib $(METAL_AIR) -o $@

-include $(METAL_AIR:.air=.air.d)
