# The needs of `make bench` besides the libraries: microbenchmarks of the machine and of hostmetal, and with PEERS=1 an
# environment with JAX and PyTorch of its own, as they do not agree with TensorFlow on versions. Peers are what a
# registry has as binaries.
BENCHMARKS := $(patsubst %.cc,build/%,$(wildcard benchmarks/*.cc))
# Formulas by hand, for Python to call; by the shaders' compiler, so that nothing but the source differs.
BY_HAND := $(patsubst %.cc,build/%.so,$(wildcard benchmarks/by_hand/*.cc))
bench: $(BENCHMARKS) $(BY_HAND) $(HOSTMETAL_BENCH) $(if $(PEERS),.venv-peers/stamp)

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
