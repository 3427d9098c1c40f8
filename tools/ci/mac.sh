#!/usr/bin/env bash
# The report of a Mac that has nothing but Xcode and Homebrew, such as GitHub's. Usage: tools/ci/mac.sh [make mac-report's ARGS]
# With the newest release of TensorFlow: tensorflow-metal does not load there, so that the METAL device is this project's own.
# tensorflow-metal calls Metal Performance Shaders, which GitHub's virtual GPUs do not support.
# Leaves build/mac-report.md and .json, and ends with make's exit code.
set -euo pipefail
cd "$(dirname "$0")/../.."
read -r release python < <(sed -n 's/^ *"\(2\.[0-9]*\)": ("[^"]*", "[^"]*", "\([0-9.]*\).*/\1 \2/p' python/metal_ops/_version.py | tail -1)
brew install highway "python@$python"
status=0
make TF="$release" PYTHON="$python" mac-report ARGS="$*" || status=$?
for found in "build/tf-$release/build"/mac-report.*; do
  [ ! -e "$found" ] || cp "$found" build/
done
[ -e build/mac-report.md ] || echo "mac: no report was written; the lines above say why" >&2
exit $status
