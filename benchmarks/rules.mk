# What `make bench` needs besides the libraries: microbenchmarks of the machine and of hostmetal, and with PEERS=1 an
# environment with JAX and PyTorch of its own, as they do not agree with TensorFlow on versions, and llama.cpp's kernels.
BENCHMARKS := $(patsubst %.cc,build/%,$(wildcard benchmarks/*.cc))
# Formulas by hand, for Python to call; by the shaders' compiler, so that nothing but the source differs.
BY_HAND := $(patsubst %.cc,build/%.so,$(wildcard benchmarks/by_hand/*.cc))
bench: $(BENCHMARKS) $(BY_HAND) $(HOSTMETAL_BENCH) $(if $(PEERS),.venv-peers/stamp .venv-peers/ggml/stamp)

build/benchmarks/%: benchmarks/%.cc $(wildcard benchmarks/*.h)
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(CXX) -std=c++17 -O3 -march=native -Wall -Wextra -I. $(CXXFLAGS) $< -o $@ -pthread $(LDFLAGS)

build/benchmarks/by_hand/%.so: benchmarks/by_hand/%.cc
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(OBJCXX) -std=c++17 -O3 -march=native -mprefer-vector-width=512 -Wall -Wextra -fPIC -shared $(CXXFLAGS) $< -o $@ $(LDFLAGS)

.venv-peers/stamp: benchmarks/requirements-peers.txt
	@python=$$(tools/setup.sh --python) && echo "metal_ops: creating .venv-peers with $$python" && \
	$(LOCKED) sh -c "{ [ -x .venv-peers/bin/python ] || $$python -m venv .venv-peers; } && \
	.venv-peers/bin/pip install --disable-pip-version-check -q -r $<" && touch $@

# Without a compiler that can build them their rows say that they are missing; the others are measured.
.venv-peers/ggml/stamp: benchmarks/requirements-ggml.txt benchmarks/ggml.sh | .venv-peers/stamp
	@echo "metal_ops: building llama.cpp's kernels in $(@D), which takes minutes"
	@mkdir -p build && if benchmarks/ggml.sh $(@D) .venv-peers > build/ggml.log 2>&1; then touch $@; else \
	tail -5 build/ggml.log; echo "metal_ops: llama.cpp's kernels could not be built, see build/ggml.log; their rows say that they are missing."; fi
