# make gpu-test OUT=<folder>: packs the files for a machine with a GPU and no network. There: python3 <folder>/run.py,
# which leaves report.txt. make gpu-suites OUT=<folder>: the same for tests that need TensorFlow; python3
# <folder>/suites.py.
ifeq ($(shell uname),Linux)

build/gpu/%: build/gpu/%.o $(HOSTMETAL_SO)
	@$(OBJCXX) -pthread $< -o $@ $(HOSTMETAL_LDFLAGS)
build/gpu/replay.o: tools/gpu/replay.mm | build/system-metal.stamp
build/gpu/hash_encode.o: benchmarks/gpu/hash_encode.mm benchmarks/hash_encode_inputs.h benchmarks/metal_program.h | build/system-metal.stamp
build/gpu/textures.o: tools/gpu/textures.mm benchmarks/metal_program.h | build/system-metal.stamp
build/gpu/fused_mlp.o: benchmarks/gpu/fused_mlp.mm benchmarks/metal_program.h kernels/fused_mlp/fused_mlp_params.h | build/system-metal.stamp
build/gpu/products.o: benchmarks/gpu/products.mm benchmarks/metal_program.h $(wildcard kernels/gemm/*_params.h) \
    kernels/quantized_matmul/quantized_matmul_params.h | build/system-metal.stamp
build/gpu/attention.o: benchmarks/gpu/attention.mm benchmarks/metal_program.h kernels/attention/attention_params.h | build/system-metal.stamp
build/gpu/attention_gradient.o: benchmarks/gpu/attention_gradient.mm benchmarks/metal_program.h kernels/attention/attention_params.h | build/system-metal.stamp
build/gpu/convolution.o: benchmarks/gpu/convolution.mm benchmarks/metal_program.h $(wildcard kernels/gemm/*_params.h) | build/system-metal.stamp
build/gpu/replay.o build/gpu/hash_encode.o build/gpu/fused_mlp.o build/gpu/textures.o build/gpu/products.o build/gpu/attention.o \
build/gpu/attention_gradient.o build/gpu/convolution.o:
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(OBJCXX) $(OBJCXXFLAGS) $(CXXFLAGS) -c $< -o $@

build/gpu/textures.metallib: tools/gpu/textures.metal | build/system-metal.stamp
	@mkdir -p $(@D)
	@$(PY) $(PKG)/metal --gpu=sm_80,sm_90 $< -o $@

# The fixture of hostmetal's tests as a shader.
build/gpu/fixtures/fixture.metallib: tests/hostmetal/fixture.metal | build/system-metal.stamp
	@mkdir -p $(@D)
	@$(PY) $(PKG)/metal --gpu=sm_80,sm_90 $< -o $@

gpu-test: metal build/gpu/replay build/gpu/hash_encode build/gpu/textures build/gpu/textures.metallib $(HOSTMETAL_TESTS) \
    build/gpu/fixtures/fixture.metallib | $(VENV)/test.stamp  ## Pack the tests of GPUs into OUT=<folder>; run run.py there
	@[ -n "$(OUT)" ] || { echo "make gpu-test needs OUT=<folder>" >&2; exit 2; }
	@[ -n "$(GPU)" ] || { echo "make gpu-test needs GPU=1: shaders with code for GPUs" >&2; exit 2; }
	@rm -rf "$(OUT)" && mkdir -p "$(OUT)/lib" "$(OUT)/fixtures"
	@git describe --always --dirty > "$(OUT)/commit"
	@cp tools/gpu/run.py build/gpu/replay build/gpu/hash_encode build/gpu/textures build/gpu/textures.metallib \
	  $(HOSTMETAL_SO) $(METALLIB) $(HOSTMETAL_TESTS) "$(OUT)"
	@cp $(filter-out %/fixture.metallib,$(HOSTMETAL_FIXTURES)) build/gpu/fixtures/fixture.metallib "$(OUT)/fixtures"
	@sed -nE 's/^TEST\((\w+)\).*/\1/p' $(HOSTMETAL_TEST_SRC) > "$(OUT)/cases"
	@ldd $(HOSTMETAL_SO) | awk '$$2 == "=>" && $$3 ~ /^\// { print $$3 }' | \
	  grep -vE '/(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+)\.so' | xargs -I{} cp -L {} "$(OUT)/lib"
	@GPU_RECORD="$(abspath $(OUT))/launches" $(PY) -m pytest -q -p tools.gpu.record -p no:cacheprovider \
	  tests/msl/test_kernels.py tests/msl/test_threadgroup.py tests/msl/test_simdgroup.py tests/msl/test_math.py \
	  tests/msl/test_integers.py tests/msl/test_types.py $(ARGS)
	@du -sh "$(OUT)"

gpu-suites: metal | $(VENV)/test.stamp  ## Pack the suites of device and ops, and TensorFlow, into OUT=<folder>; run suites.py there
	@[ -n "$(OUT)" ] || { echo "make gpu-suites needs OUT=<folder>" >&2; exit 2; }
	@[ -n "$(GPU)" ] || { echo "make gpu-suites needs GPU=1: shaders with code for GPUs" >&2; exit 2; }
	@$(PY) -m tools.gpu.suites "$(OUT)"
	@du -sh "$(OUT)"

NEEDS_gpu-test := --metal
NEEDS_gpu-suites := --metal
.PHONY: gpu-test gpu-suites
endif
