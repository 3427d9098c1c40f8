# `make bazel`: bazelisk from npm, a Bazel that it can reach, and then the same build and tests as make's.
BAZELISK := build/bazelisk/node_modules/.bin/bazelisk
# All of them, and the comparison with make's libraries.
BAZEL_TESTS ?= //... //tests:same_as_make
BAZEL_BUILD ?= //...

# 1.28.1: the newest at the time of writing; it is the launcher alone, .bazelversion says which Bazel.
$(BAZELISK): | build/system-metal.stamp
	@tools/setup.sh --npm
	@npm install --silent --no-fund --no-audit --prefix build/bazelisk @bazel/bazelisk@1.28.1

# Shaders that make has compiled come from the compiler's cache: its names are of all that a shader's code depends on, and
# a header that Bazel was not told of is still missed. It is a folder of this user's alone, else actions have one each.
# Asked once, by this goal alone.
SHADER_CACHE = $(eval SHADER_CACHE := $(shell $(PY) -c "import sys; sys.path.insert(0, 'python/metal_ops'); from metal import cache; print(cache.folder().parent)" 2>/dev/null))$(SHADER_CACHE)
WITH_CACHE = --action_env=METAL_OPS_CACHE=$(SHADER_CACHE) --sandbox_writable_path=$(SHADER_CACHE)

bazel: build metal $(BAZELISK) | $(VENV)/test.stamp  ## Build and test with Bazel (BAZEL_TESTS=//tests:package_test for some; METAL_OPS_TARGETS=all to compare)
	@PATH=$(CURDIR)/$(VENV)/bin:$$PATH tools/bazel/bazelisk.sh $(BAZELISK) build $(BAZEL_BUILD) $(WITH_CACHE)
	@[ -z "$(BAZEL_TESTS)" ] || PATH=$(CURDIR)/$(VENV)/bin:$$PATH tools/bazel/bazelisk.sh $(BAZELISK) test $(BAZEL_TESTS) $(WITH_CACHE) $(ARGS)

NEEDS_bazel := --metal --npm
.PHONY: bazel
