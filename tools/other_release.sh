#!/usr/bin/env bash
# Keeps build/tf-<release> a copy of the sources, in which make builds for that release of TensorFlow: `make TF=2.21 ...`.
# Usage: tools/other_release.sh RELEASE          what git knows and does not ignore is copied, times and links included;
#                                                what is gone here goes there
#        tools/other_release.sh RELEASE objects  once, when TensorFlow is there: objects that know its C interface alone
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
release=$1 copy=build/tf-$1

# ---- objects --------------------------------------------------------------------------------------------------------
# TensorFlow keeps the C interface as it is, and their code comes out alike (compared for 2.18 and 2.19; debug information differs in a few); a tenth of
# those of the device and of Metal kernels includes more of TensorFlow, or says its version.
if [ "${2-}" = objects ]; then
  # Flags may differ in where things lie, and in the version.
  flags() { tr ' ' '\n' <"$1" | grep -v -e '^/' -e '^-ffile-prefix-map=' -e '^-DMETAL_OPS_TENSORFLOW='; }
  alike=1 taken=0
  for file in build/tensorflow/cflags build/metal_flags/cflags build/metal_flags/compiler; do
    [ -e $file ] && [ -e "$copy/$file" ] && cmp -s <(flags $file) <(flags "$copy/$file") || alike=
  done
  if [ $alike ]; then
    knows=$(git grep --untracked -lE '#include "(tensorflow/(c/tf_tensor_internal|core/|cc/|compiler/)|tsl/|xla/|absl/|Eigen/|google/)|METAL_OPS_TENSORFLOW' -- '*.h' '*.mm' '*.cc')
    while read -r depends; do
      object=${depends%.d}.o
      # The prerequisites of the first rule.
      mapfile -t files < <(sed -e '/^$/,$d' -e '/^[^ ].*:$/d' "$depends" | tr -d '\\' | tr ' ' '\n' | sed -e '/:$/d' -e '/^$/d')
      # No pipe: grep ends at the first match, and the rest of printf's output would make a failure of it.
      ! grep -qxF "$knows" < <(printf '%s\n' "${files[@]}") || continue
      # Up to date here, as make would have it.
      files+=(build/tensorflow/cflags)
      if [[ $object = build/device_so/* && $(uname) != Darwin ]]; then files+=(device/rules.mk); else files+=(build/metal_flags/compiler); fi
      [ -z "$(find -L "${files[@]}" -newer "$object" 2>&1)" ] || continue
      mkdir -p "$copy/${object%/*}"
      # Newer than the flags there.
      cp "$depends" "$copy/$depends" && cp "$object" "$copy/$object" && taken=$((taken + 1))
    done < <(find build/device_so build/metal_so -name '*.d' 2>/dev/null)
  fi
  echo "metal_ops: $taken objects that know TensorFlow's C interface alone are those of this tree"
  touch "$copy/build/objects"
  exit 0
fi

# ---- sources --------------------------------------------------------------------------------------------------------
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

# Objects that do not depend on TensorFlow are taken from here the first time: make sees by the times whether
# it is up to date.
if [ ! -e "$copy/build/release" ]; then
  { find build/hostmetal/src build/kernels build/device build/metal_gpu build/simd_targets build/system*.stamp python/metal_ops -type f \
    ! -path 'build/kernels/tensorflow/*' \
    \( -path 'build/hostmetal/src/*.[od]' -o -path 'build/kernels/*.[od]' -o -name '*.air' -o -name '*.air.d' -o -name '*.stamp' \
    -o -name metal_gpu -o -name simd_targets -o -name '*.metallib' -o -name libhostmetal.so \) 2>/dev/null || true; } |
    tar --format=pax -cf - -T - | tar -xf - -C "$copy"
  echo "$release" >"$copy/build/release"
fi
