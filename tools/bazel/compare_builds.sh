#!/usr/bin/env bash
# Usage: compare_builds.sh <python> - compares Bazel's libraries with those that make left in the checkout.
set -euo pipefail
runfiles=$TEST_SRCDIR/$TEST_WORKSPACE
checkout=$(dirname "$("$1" -c 'import os, sys; print(os.path.realpath(sys.argv[1]))' "$runfiles/pyproject.toml")")
export METAL_OPS_MSL=$checkout/hostmetal/msl  # whose header says what a shader library is
# Copied, as Python resolves links to where make's libraries are.
cp -RL "$runfiles/python" "$TEST_TMPDIR/bazel"
exec "$1" "$runfiles/tools/bazel/compare_builds.py" "$TEST_TMPDIR/bazel/metal_ops" "$checkout/python/metal_ops"
