#!/usr/bin/env bash
# Keeps build/tf-<release> a copy of the sources, in which make builds for that release of TensorFlow: `make TF=2.21 ...`.
# Usage: tools/other_release.sh RELEASE
# What git knows and does not ignore is copied, times and links included; what is gone here goes there.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
release=$1 copy=build/tf-$1

tools/setup.sh --check-release "$release"
git rev-parse --show-toplevel >/dev/null 2>&1 || {
  echo "metal_ops: TF=$release copies the files that git lists, and this is no checkout; clone the repository." >&2
  exit 1
}
mkdir -p "$copy/build"
comm -23 <(git ls-files -co --exclude-standard | sort -u) <(git ls-files -d | sort -u) >"$copy/build/files.new"
[ ! -e "$copy/build/files" ] || comm -13 "$copy/build/files.new" "$copy/build/files" | (cd "$copy" && tr '\n' '\0' | xargs -0 rm -f)
tar --format=pax -cf - -T "$copy/build/files.new" | tar -xf - -C "$copy"
mv "$copy/build/files.new" "$copy/build/files"

# What knows no TensorFlow is taken from here the first time: make sees by the times whether it is up to date.
if [ ! -e "$copy/build/release" ]; then
  { find build/hostmetal/src build/kernels build/device build/metal_gpu build/system*.stamp python/metal_ops -type f \
    \( -path 'build/hostmetal/src/*.[od]' -o -name '*_simd.[od]' -o -name '*.air' -o -name '*.air.d' -o -name '*.stamp' \
    -o -name metal_gpu -o -name '*.metallib' -o -name libhostmetal.so \) 2>/dev/null || true; } |
    tar --format=pax -cf - -T - | tar -xf - -C "$copy"
  echo "$release" >"$copy/build/release"
fi
