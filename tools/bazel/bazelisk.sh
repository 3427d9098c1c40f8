#!/usr/bin/env bash
# Usage: bazelisk.sh <bazelisk> <arguments>... - calls bazelisk with a Bazel that it can reach.
# That is USE_BAZEL_VERSION where it is set, else the one in .bazelversion, else Debian's bazel-bootstrap (4.2.3).
set -euo pipefail
bazelisk=$1
shift
options=()
if [ -z "${USE_BAZEL_VERSION:-}" ]; then
  remembered=build/bazelisk/version
  # Asked once: a download that cannot be takes bazelisk 15 seconds to give up.
  if [ ! -s "$remembered" ]; then
    if "$bazelisk" version >/dev/null 2>&1; then
      cat .bazelversion >"$remembered"
    else
      echo "metal_ops: Bazel $(cat .bazelversion) cannot be downloaded here; taking Debian's"
      tools/setup.sh --bazel
      command -v bazel-4 >"$remembered"
    fi
  fi
  USE_BAZEL_VERSION=$(cat "$remembered")
  export USE_BAZEL_VERSION
fi
echo "metal_ops: Bazel $USE_BAZEL_VERSION"
# Debian's launcher leaves a server behind that the next bazelisk does not find.
case $USE_BAZEL_VERSION in /*bazel-4) options=(--batch) ;; esac
# The + is for the bash 3.2 of macOS, to which an empty array is unset.
exec "$bazelisk" ${options[@]+"${options[@]}"} "$@" 2> >(grep --line-buffered -v -e 'main/tools/linux-sandbox' -e 'Xverify:none' >&2)
