#!/usr/bin/env bash
# Builds for each release of TensorFlow and runs the suites of ops and device under each Python that it has wheels for.
# Usage: tools/test_matrix.sh RELEASE PYTHON MARKERS [pytest's arguments, in place of -m MARKERS]
#   RELEASE, PYTHON   e.g. 2.20 and 3.12, for one row; all where they are empty
# The libraries are of no Python, so a release is built once, in a tree whose .venv has one of them; the others get an
# environment in build/python-<version> there. The table at the end is in build/test-matrix.md, too, with the rows of
# earlier calls and the commits that they are of; what a row's build and tests said is in build/test-matrix.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
release=$1 python=$2 markers=$3
shift 3
# Neither the caller's variables nor its job server are for the makes in here.
unset MAKEFLAGS MFLAGS MAKELEVEL TF PYTHON ARGS
readonly PYTHONS="3.11 3.12 3.13"
logs=build/test-matrix
commit=$(git describe --always --dirty 2>/dev/null)

[ -z "$release" ] || tools/setup.sh --check-release "$release" || exit 1
[[ -z $python || " $PYTHONS " = *" $python "* ]] || {
  echo "metal_ops: PYTHON=$python is no row; there are ${PYTHONS// /, }." >&2
  exit 1
}
mkdir -p "$logs"
here=$(tools/setup.sh --release)
[ $# -gt 0 ] || set -- -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder -m "$markers"

# row RELEASE PYTHON RESULT [SECONDS]: pytest's counts have columns, all else is a note.
row() {
  local counts= note=$3 each number
  for each in passed failed error skipped; do
    number=$(sed -n -E "s/(^|.*, )([0-9]+) ${each}s?(,.*)?\$/\2/p" <<<"$3")
    [ -z "$number" ] || note=
    counts+="${number:--} | "
  done
  [ -n "$note" ] || counts=${counts//-/0}
  echo "| $1 | $2 | $counts${4-} | $commit | $note |" >"$logs/$1-$2.row"
  echo "metal_ops: TensorFlow $1, Python $2: $3"
}
# environment FOLDER INTERPRETER: the package of the tree that this is called in, and the packages of its
# tests.
environment() {
  [ ! -e "$1/stamp" ] || return 0
  "$2" -m venv "$1" && tools/setup.sh --requirements >build/requirements.txt &&
    "$1/bin/python" -m pip install --disable-pip-version-check -q -r build/requirements.txt -r requirements-test.txt &&
    "$1/bin/python" -m pip install --disable-pip-version-check -q --no-deps -r requirements-test-no-deps.txt &&
    "$1/bin/python" -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e . && touch "$1/stamp"
}
# run RELEASE PYTHON INTERPRETER [pytest's arguments]
run() {
  local log=$PWD/$logs/$1-$2.log tree=. began=$SECONDS said status
  [ "$1" = "$here" ] || tree=build/tf-$1
  # The Python is for who makes the first environment there.
  if ! make TF="$1" metal .venv/test.stamp PYTHON="$3" >"$log" 2>&1; then
    row "$1" "$2" "not built: $logs/$1-$2.log" && return 1
  fi
  local own=.venv
  [ "$("$tree/$own/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = "$2" ] || own=build/python-$2
  if [ $own != .venv ] && ! (cd $tree && environment $own "$3") >>"$log" 2>&1; then
    row "$1" "$2" "no environment: $logs/$1-$2.log" && return 1
  fi
  (cd $tree && $own/bin/python -m pytest --color=no "${@:4}") >>"$log" 2>&1
  status=$?
  said=$(tail -1 "$log" | sed -n -E 's/^=* ?(.*[0-9]+ (passed|failed|skipped|error).*) in [0-9.]+s.*/\1/p')
  row "$1" "$2" "${said:-exit code $status: $logs/$1-$2.log}" $((SECONDS - began))
  return $status
}

failed=0
for each in ${release:-$(tools/setup.sh --releases)}; do
  for version in ${python:-$PYTHONS}; do
    # The version, and the interpreter if there is one.
    read -r has interpreter < <(tools/setup.sh --pythons "$each" | grep "^$version") || true
    if [ -z "$has" ]; then
      row "$each" "$version" "skipped: TensorFlow has no wheels"
    elif [ -z "$interpreter" ]; then
      row "$each" "$version" "skipped: no such Python here"
    else
      run "$each" "$version" "$interpreter" "$@" || failed=1
    fi
  done
done
{
  printf '| TensorFlow | Python | passed | failed | errors | skipped | seconds | of | note |\n|---|---|---|---|---|---|---|---|---|\n'
  cat $logs/*.row
} | tee build/test-matrix.md
exit $failed
