# libmetal_device.so: the PluggableDevice that gives TensorFlow a METAL "GPU", and the stock ops that training with this
# library's ops needs there.
DEVICE_SO := $(PKG)/libmetal_device.so
DEVICE_METALLIB := $(PKG)/libmetal_device.metallib
METAL_LIBRARIES += $(DEVICE_SO) $(DEVICE_METALLIB)

DEVICE_SRC := $(wildcard device/*.mm device/kernels/*.mm device/kernels/nn/*.mm) $(METAL_SHARED_MM)
DEVICE_OBJ := $(DEVICE_SRC:%.mm=build/device_so/%.o)
DEVICE_SHADERS := $(wildcard device/kernels/*.metal device/kernels/nn/*.metal)
DEVICE_AIR := $(DEVICE_SHADERS:%.metal=build/%.air)

ifeq ($(shell uname),Darwin)
# Shaders by kernels/metal.mk; TensorFlow's symbols are those of the TensorFlow that loads it.
build/device_so/%.o: %.mm $(TF_FLAGS)/cflags $(METAL_FLAGS)/compiler
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$$(cat $(METAL_FLAGS)/compiler) @$(METAL_FLAGS)/cflags -O2 -g1 -fvisibility=hidden -Wall -Wextra \
	  -Wno-unused-parameter -Wno-missing-field-initializers -I. -MMD -MP $(REPRODUCIBLE) $(CXXFLAGS) $(TF_CFLAGS) -c $< -o $@

$(DEVICE_SO): $(DEVICE_OBJ) device/exports.map
	@echo "  link    $@"
	@$$(cat $(METAL_FLAGS)/compiler) -shared $(DEVICE_OBJ) -o $@.tmp @$(METAL_FLAGS)/ldflags $(TF_LDFLAGS) \
	  $(call link_flags,$@,device/exports.map) $(LDFLAGS) && mv $@.tmp $@

$(DEVICE_METALLIB): $(DEVICE_AIR)
	@echo "  link    $@"
	@xcrun -sdk macosx metallib $(DEVICE_AIR) -o $@
else

DEVICE_OBJCXXFLAGS = $(OBJCXXFLAGS) -include hostmetal/protocols_once.h -g1 -fvisibility=hidden -ffp-contract=off $(REPRODUCIBLE) \
  -Wno-missing-field-initializers -MMD -MP

build/device_so/%.o: %.mm $(TF_FLAGS)/cflags device/rules.mk | build/system-metal.stamp
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(OBJCXX) $(DEVICE_OBJCXXFLAGS) $(CXXFLAGS) $(TF_CFLAGS) -c $< -o $@

# Kernels look for the soname when they ask whether the device is loaded.
$(DEVICE_SO): $(DEVICE_OBJ) $(PKG)/libhostmetal.so device/exports.map
	@echo "  link    $@"
	@$(OBJCXX) -shared -pthread $(DEVICE_OBJ) -o $@.tmp -Wl,-soname,libmetal_device.so -Wl,-z,defs \
	  $(HOSTMETAL_LDFLAGS) $(TF_LDFLAGS) -l:libtensorflow_cc.so.2 $(call link_flags,$@,device/exports.map) $(LDFLAGS) && mv $@.tmp $@

$(DEVICE_METALLIB): $(DEVICE_AIR)
	@echo "  link    $@"
	@$(METAL) metallib $(DEVICE_AIR) -o $@

-include $(DEVICE_AIR:.air=.air.d)

# The libraries with the code of all kernels for this processor, for who will call most of them: one by one takes longer.
kernels-ahead: metal  ## Compile the code of all kernels that make metal leaves for later
	@$(MAKE) build/kernels_ahead.stamp
build/kernels_ahead.stamp: $(METAL_AIR) $(DEVICE_AIR)
	@echo "  ahead   $(METALLIB)"
	@$(METAL) metallib --ahead $(METAL_AIR) -o $(METALLIB)
	@echo "  ahead   $(DEVICE_METALLIB)"
	@$(METAL) metallib --ahead $(DEVICE_AIR) -o $(DEVICE_METALLIB)
	@touch $@
NEEDS_kernels-ahead := --metal
.PHONY: kernels-ahead

# Calls the plugin as TensorFlow does; tests/device runs it.
DEVICE_TEST := build/device_so/executor_test
METAL_LIBRARIES += $(DEVICE_TEST)
$(DEVICE_TEST): build/device_so/tests/device/executor_test.o $(DEVICE_SO)
	@echo "  link    $@"
	@$(OBJCXX) -pthread $< -o $@ -L$(PKG) -lmetal_device $(HOSTMETAL_LDFLAGS) $(TF_LDFLAGS) -l:libtensorflow_cc.so.2 \
	  -Wl,-rpath,$(abspath $(PKG)) @$(TF_FLAGS)/rpath $(LDFLAGS)

# The same program with runtime, device and test in one, under the sanitizers: part of `make sanitize`. And the device's
# kernels, with the test in TensorFlow's place, which alone is seen by ThreadSanitizer.
DEVICE_SANITIZE_SRC := $(HOSTMETAL_SRC) $(wildcard device/*.mm) kernels/runtime/platform.mm tests/device/executor_test.mm
DEVICE_KERNELS_SRC := $(HOSTMETAL_SRC) $(filter-out kernels/tensorflow/variable.mm kernels/tensorflow/part.mm,$(DEVICE_SRC)) tests/device/kernels_test.mm
DEVICE_TF_LINK = $(TF_LDFLAGS) -l:libtensorflow_cc.so.2 @$(TF_FLAGS)/rpath
define device_sanitize_rules
$(foreach room,device kernels tests/device,build/sanitize/$(1)/$(room)/%.o): OBJCXXFLAGS += $$(TF_CFLAGS) \
  -ffp-contract=off -Wno-missing-field-initializers
$$(patsubst %,build/sanitize/$(1)/%.o,$$(basename $$(DEVICE_SRC) $$(wildcard tests/device/*_test.mm))): $$(TF_FLAGS)/cflags
build/sanitize/$(1)/device_tests: $$(patsubst %,build/sanitize/$(1)/%.o,$$(basename $$(DEVICE_SANITIZE_SRC)))
	@$$(OBJCXX) -pthread $$(SANITIZE_$(1)) $$^ -o $$@ $$(HOSTMETAL_LIBS) $$(DEVICE_TF_LINK)

# Kernels look for their shaders beside their own library, and for the device's functions in the
# process.
build/sanitize/$(1)/device_kernels: $$(patsubst %,build/sanitize/$(1)/%.o,$$(basename $$(DEVICE_KERNELS_SRC))) $(DEVICE_METALLIB)
	@$$(OBJCXX) -pthread -rdynamic $$(SANITIZE_$(1)) $$(filter %.o,$$^) -o $$@ $$(HOSTMETAL_LIBS) $$(DEVICE_TF_LINK)
	@cp $(DEVICE_METALLIB) $$@.metallib

-include $$(patsubst %,build/sanitize/$(1)/%.d,$$(basename $$(DEVICE_SRC) tests/device/executor_test.mm tests/device/kernels_test.mm))
endef
$(foreach name,address thread,$(eval $(call device_sanitize_rules,$(name))))

# $(call sanitize_device,<sanitizer>,<program and arguments>): its output lies beside it.
sanitize_device = $(SANITIZE_SYMBOLIZERS) HOSTMETAL_COMPILER=$(PKG)/metal HOSTMETAL_PYTHON=$(PY) METAL_OPS_DEVICE_MEMORY_MB=64 TF_CPP_MIN_LOG_LEVEL=3 \
  LSAN_OPTIONS=suppressions=tests/hostmetal/leaks.supp:print_suppressions=0 \
  TSAN_OPTIONS=suppressions=tests/hostmetal/races.supp:halt_on_error=0:report_signal_unsafe=0:exitcode=66 \
  build/sanitize/$(1)/$(2) > build/sanitize/$(1)-$(firstword $(2)).log 2>&1

sanitize: sanitize-device
sanitize-device: $(foreach name,address thread,build/sanitize/$(name)/device_tests build/sanitize/$(name)/device_kernels)
	@for name in address thread; do for program in device_tests device_kernels; do \
	  echo "  $$name sanitizer, $$program"; \
	  $(call sanitize_device,$$name,$$program) || { tail -60 build/sanitize/$$name-$$program.log; exit 1; }; done; done
	@echo "  thread sanitizer, a planted race in a kernel"
	@$(call sanitize_device,thread,device_kernels planted locked) || { tail -60 build/sanitize/thread-device_kernels.log; exit 1; }
	@$(call sanitize_device,thread,device_kernels planted); \
	  [ $$? = 66 ] && grep -q 'ThreadSanitizer: data race' build/sanitize/thread-device_kernels.log && \
	  grep -q PlantedRace build/sanitize/thread-device_kernels.log || { echo "the planted race was not found"; exit 1; }

.PHONY: sanitize-device
-include build/device_so/tests/device/executor_test.d
endif
-include $(DEVICE_OBJ:.o=.d)
