# libhostmetal.so: Metal, dispatch and blocks for Linux. Other rooms compile Objective-C++ with $(OBJCXX) $(OBJCXXFLAGS)
# and link with $(HOSTMETAL_LDFLAGS). On a Mac the system has all of it, and nothing here is built.
ifeq ($(shell uname),Linux)

HOSTMETAL_SO := $(PKG)/libhostmetal.so
METAL_LIBRARIES += $(HOSTMETAL_SO)

OBJCXX ?= clang++-19
# GCC's headers come last: with -I its xmmintrin.h is found before clang's own.
# Asked once, by the first file that is compiled: when make reads this, a new machine has no GCC yet.
OBJC_INCLUDE = $(eval OBJC_INCLUDE := $$(shell gcc -print-file-name=include))$(OBJC_INCLUDE)
# A folder of the architecture's on Debian 13.
GNUSTEP_INCLUDE = $(eval GNUSTEP_INCLUDE := $$(shell gnustep-config --variable=GNUSTEP_SYSTEM_HEADERS))$(GNUSTEP_INCLUDE)
# -Wno-nullability-completeness: GNUstep's headers are annotated in part.
OBJCXXFLAGS = -x objective-c++ -std=c++17 -fobjc-runtime=gcc -fblocks -O2 -DNDEBUG -fPIC -pthread \
               -isystem hostmetal/include -isystem hostmetal/include/compat -isystem $(GNUSTEP_INCLUDE) \
               -idirafter $(OBJC_INCLUDE) -DGNUSTEP -DGNUSTEP_BASE_LIBRARY=1 -DGNU_RUNTIME=1 \
               -fexceptions -fobjc-exceptions -D_NATIVE_OBJC_EXCEPTIONS \
               -fconstant-string-class=NSConstantString -fno-strict-aliasing -I. \
               -Wall -Wextra -Wno-unused-parameter -Wno-nullability-completeness $(REPRODUCIBLE)
HOSTMETAL_LDFLAGS := -L$(PKG) -lhostmetal -lgnustep-base -lobjc -Wl,-rpath,'$$ORIGIN'

HOSTMETAL_SRC := $(wildcard hostmetal/src/*.mm hostmetal/src/*.cc hostmetal/src/*/*.mm hostmetal/src/*/*.cc)
HOSTMETAL_OBJ := $(patsubst %,build/%.o,$(basename $(HOSTMETAL_SRC)))
# The same flags for the plain C++ files, less what is Objective-C's.
HOSTMETAL_CXXFLAGS := -std=c++17 -O2 -DNDEBUG -fPIC -pthread -I. -Wall -Wextra -Wno-unused-parameter $(REPRODUCIBLE)
HOSTMETAL_LIBS := -lgnustep-base -lobjc -l:libboost_context.a -ldl

build/hostmetal/src/%.o: hostmetal/src/%.mm | build/system-metal.stamp
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(OBJCXX) $(OBJCXXFLAGS) $(CXXFLAGS) -MMD -MP -c $< -o $@

build/hostmetal/src/%.o: hostmetal/src/%.cc | build/system-metal.stamp
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(OBJCXX) $(HOSTMETAL_CXXFLAGS) $(CXXFLAGS) -MMD -MP -c $< -o $@

$(HOSTMETAL_SO): $(HOSTMETAL_OBJ) hostmetal/src/exports.map
	@echo "  link    $@"
	@$(OBJCXX) -shared -pthread $(HOSTMETAL_OBJ) -o $@.tmp -Wl,-soname,libhostmetal.so -Wl,-z,defs -Wl,-Bsymbolic-functions \
	  -Wl,--version-script,hostmetal/src/exports.map $(HOSTMETAL_LIBS) $(LDFLAGS) && mv $@.tmp $@

-include $(HOSTMETAL_OBJ:.o=.d)

# ---- the runtime's own tests; tests/hostmetal/test_hostmetal.py asks for them ---------------------------------------
HOSTMETAL_TESTS := build/tests/hostmetal/hostmetal_tests
HOSTMETAL_BENCH := build/tests/hostmetal/bench
HOSTMETAL_TEST_SRC := tests/hostmetal/harness.mm $(wildcard tests/hostmetal/*_test.mm)
HOSTMETAL_FIXTURES := $(addprefix build/tests/hostmetal/,fixture.metallib old_abi.metallib unsupported.metallib loud.metallib other.metallib)

build/tests/hostmetal/old_abi.metallib: FIXTURE := -DFIXTURE_ABI_VERSION=999
build/tests/hostmetal/unsupported.metallib: FIXTURE := -DFIXTURE_UNSUPPORTED
build/tests/hostmetal/loud.metallib: FIXTURE := -DFIXTURE_CONSTRUCTOR
# Without the compiler's start-up files, which bring constructors.
build/tests/hostmetal/%.metallib: tests/hostmetal/fixture_kernels.cc tests/hostmetal/seal.py hostmetal/msl/metallib_abi.h | build/system-metal.stamp
	@mkdir -p $(@D)
	@$(OBJCXX) $(HOSTMETAL_CXXFLAGS) $(FIXTURE) -shared -nostdlib $< -lc -o $@.so
	@$(PY) tests/hostmetal/seal.py $@.so $@
build/tests/hostmetal/other.metallib: tests/hostmetal/fixture_other.cc tests/hostmetal/seal.py hostmetal/msl/metallib_abi.h | build/system-metal.stamp
	@mkdir -p $(@D)
	@$(OBJCXX) $(HOSTMETAL_CXXFLAGS) -shared -nostdlib $< -lc -o $@.so
	@$(PY) tests/hostmetal/seal.py $@.so $@

# -Wno-nonnull: nil where it does not belong is part of the tests.
build/tests/hostmetal/%.o: tests/hostmetal/%.mm | build/system-metal.stamp
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(OBJCXX) $(OBJCXXFLAGS) -Wno-nonnull $(CXXFLAGS) -MMD -MP -c $< -o $@

$(HOSTMETAL_TESTS): $(patsubst %.mm,build/%.o,$(HOSTMETAL_TEST_SRC)) $(HOSTMETAL_SO) $(HOSTMETAL_FIXTURES)
	@$(OBJCXX) -pthread $(filter %.o,$^) -o $@ $(HOSTMETAL_LDFLAGS) -Wl,-rpath,$(CURDIR)/$(PKG)

# The CUDA backend's tests, and the stand-in for NVIDIA's library there; tests/hostmetal/test_cuda.py asks for
# them.
build/tests/hostmetal/cuda/driver_test: build/tests/hostmetal/cuda/driver_test.o $(HOSTMETAL_SO)
	@$(OBJCXX) -pthread $(filter %.o,$^) -o $@ $(HOSTMETAL_LDFLAGS) -ldl -Wl,-rpath,$(CURDIR)/$(PKG)
build/tests/hostmetal/cuda/libcuda.so: tests/hostmetal/cuda/fake_libcuda.cc | build/system-metal.stamp
	@mkdir -p $(@D)
	@$(OBJCXX) $(HOSTMETAL_CXXFLAGS) -shared $< -o $@

$(HOSTMETAL_BENCH): build/tests/hostmetal/bench.o $(HOSTMETAL_SO) build/tests/hostmetal/fixture.metallib
	@$(OBJCXX) -pthread $(filter %.o,$^) -o $@ $(HOSTMETAL_LDFLAGS) -Wl,-rpath,$(CURDIR)/$(PKG)

-include $(patsubst %.mm,build/%.d,$(HOSTMETAL_TEST_SRC)) build/tests/hostmetal/bench.d

# ---- the same tests under the sanitizers ----------------------------------------------------------------------------
# Runtime and tests in one program; GNUstep and libobjc are not instrumented, hence the suppressions.
SANITIZE_address := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANITIZE_thread := -fsanitize=thread
# Reports name files and lines, which is all of -g that they use.
SANITIZE_COMMON := -O1 -gline-tables-only -fno-omit-frame-pointer -Wno-nonnull -DHOSTMETAL_COUNT_OBJECTS
# binutils' where llvm-symbolizer, which is not among clang's runtimes, is missing: it names the lines of a report.
SANITIZE_SYMBOLIZER = $(firstword $(shell command -v llvm-symbolizer-19 llvm-symbolizer addr2line))
SANITIZE_SYMBOLIZERS = $(foreach tool,ASAN UBSAN TSAN,$(tool)_SYMBOLIZER_PATH=$(SANITIZE_SYMBOLIZER))
SANITIZE_SRC := $(HOSTMETAL_SRC) $(HOSTMETAL_TEST_SRC)

build/sanitize/runtime.stamp: | build/system-metal.stamp
	@tools/setup.sh --sanitize
	@mkdir -p $(@D) && touch $@

define sanitize_rules
build/sanitize/$(1)/%.o: %.mm | build/sanitize/runtime.stamp
	@mkdir -p $$(@D)
	@echo "  compile $$< ($(1))"
	@$$(OBJCXX) $$(OBJCXXFLAGS) $$(SANITIZE_COMMON) $$(SANITIZE_$(1)) -MMD -MP -c $$< -o $$@

build/sanitize/$(1)/%.o: %.cc | build/sanitize/runtime.stamp
	@mkdir -p $$(@D)
	@echo "  compile $$< ($(1))"
	@$$(OBJCXX) $$(HOSTMETAL_CXXFLAGS) $$(SANITIZE_COMMON) $$(SANITIZE_$(1)) -MMD -MP -c $$< -o $$@

build/sanitize/$(1)/hostmetal_tests: $$(patsubst %,build/sanitize/$(1)/%.o,$$(basename $$(SANITIZE_SRC)))
	@$$(OBJCXX) -pthread $$(SANITIZE_$(1)) $$^ -o $$@ $$(HOSTMETAL_LIBS)

-include $$(patsubst %,build/sanitize/$(1)/%.d,$$(basename $$(SANITIZE_SRC)))
endef
$(foreach name,address thread,$(eval $(call sanitize_rules,$(name))))

# <sanitizer>-<threads>-<validation>: goals of their own, so that make runs several at once. Each in a folder of its own, as
# tests write files beside the program and the fixtures.
SANITIZED_RUNS := $(foreach name,address thread,sanitize-$(name)-2-0 sanitize-$(name)-5-1)
sanitize: $(SANITIZED_RUNS)  ## Run hostmetal's tests under the sanitizers
$(SANITIZED_RUNS): sanitize-%: build/sanitize/address/hostmetal_tests build/sanitize/thread/hostmetal_tests $(HOSTMETAL_FIXTURES)
	@set -- $(subst -, ,$*); own=build/sanitize/$*; echo "  $$1 sanitizer, $$2 threads, validation $$3"; \
	rm -rf $$own && mkdir -p $$own && ln build/sanitize/$$1/hostmetal_tests $$own && cp $(HOSTMETAL_FIXTURES) $$own || exit 1; \
	HOSTMETAL_FIXTURES=$$own METAL_DEVICE_WRAPPER_TYPE=$$3 HOSTMETAL_NUM_THREADS=$$2 $(SANITIZE_SYMBOLIZERS) \
	HOSTMETAL_COMPILER=$(PKG)/metal HOSTMETAL_PYTHON=$(PY) \
	ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
	LSAN_OPTIONS=suppressions=tests/hostmetal/leaks.supp:print_suppressions=0 \
	TSAN_OPTIONS=suppressions=tests/hostmetal/races.supp:halt_on_error=0:report_signal_unsafe=0:exitcode=66 \
	$$own/hostmetal_tests > build/sanitize/$*.log 2>&1 || { tail -60 build/sanitize/$*.log; exit 1; }

NEEDS_sanitize := --metal --sanitize

# ---- fuzzing: tests/fuzz ---------------------------------------------------------------------------------------------
FUZZ_ELF := build/fuzz/elf_fuzz
$(FUZZ_ELF): tests/fuzz/elf_fuzz.cc hostmetal/src/cpu/elf.cc hostmetal/src/cpu/elf.h build/tests/hostmetal/fixture.metallib | build/sanitize/runtime.stamp
	@mkdir -p $(@D)
	@$(OBJCXX) $(HOSTMETAL_CXXFLAGS) -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined $(filter %.cc,$^) -o $@

fuzz: build metal $(FUZZ_ELF)  ## Fuzz what reads files (ARGS="--reader scene --inputs 250000 --seed 1")
	@$(PY) -m tests.fuzz $(ARGS)

NEEDS_fuzz := --metal --sanitize

.PHONY: sanitize $(SANITIZED_RUNS) fuzz
-include hostmetal/msl/rules.mk

endif
