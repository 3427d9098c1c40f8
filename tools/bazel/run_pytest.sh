#!/usr/bin/env bash
# Usage: run_pytest.sh <python> <test file or folder>... - pytest on a checkout made of Bazel's runfiles.
# They are copied: Python resolves links, and would find the libraries that make left in the real checkout.
set -euo pipefail
python=$1
shift
checkout=$TEST_TMPDIR/checkout
mkdir -p "$checkout"
cp -RL "$TEST_SRCDIR/$TEST_WORKSPACE/." "$checkout"
chmod -R u+w "$checkout"
cd "$checkout"
mkdir -p build
cp -R tests/programs/. build # where make puts them
export METAL_OPS_BUILT_BY=bazel PYTHONPATH=$checkout/python PATH=$(dirname "$python"):$PATH
export METAL_OPS_CACHE=$TEST_TMPDIR/cache
exec "$python" -m pytest -p no:cacheprovider --basetemp="$TEST_TMPDIR/pytest" "$@"
