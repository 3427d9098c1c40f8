#!/usr/bin/env bash
# Runs a command in this checkout in a new container of Debian 12, with the two packages that the README asks for: git and
# make. Usage: tools/ci/debian.sh COMMAND [ARGUMENT...]
# Wheels are made there, as their libraries are for its GNUstep and need no newer glibc than its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { echo "usage: tools/ci/debian.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
# The checkout belongs to another user there, which git takes for a mistake.
exec docker run --rm -v "$PWD:/metal_ops" -w /metal_ops -e CI \
  -e GIT_CONFIG_COUNT=1 -e GIT_CONFIG_KEY_0=safe.directory -e GIT_CONFIG_VALUE_0=/metal_ops debian:12 \
  bash -euc 'apt-get update -qq && apt-get install -y -qq git make >/dev/null && exec "$@"' bash "$@"
