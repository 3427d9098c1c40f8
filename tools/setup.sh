#!/usr/bin/env bash
# Installs the system packages that the build needs, in one call, or says in one sentence which command does.
# Usage: tools/setup.sh [WORD...] [--if-possible WORD...]
#          (nothing)   packages of the CPU ops; they are asked for with every word but --browser
#          --metal     packages of hostmetal, the Metal kernels and the device (Linux)
#          --sanitize  the runtimes of clang's sanitizers, which `make sanitize` links (Linux)
#          --browser   the headless browser that the HTML view of fusions is tested in
#          --tools     llvm-cov and gdb, without which the tests of coverage and of a debugger are skipped (Linux)
#          --npm       npm, which bazelisk comes from
#          --bazel     Debian's Bazel, where none can be downloaded
#        Words after --if-possible are installed with the rest; a missing one is a message, and no failure.
#        tools/setup.sh --python        print the interpreter to make .venv with
#        tools/setup.sh --releases      print all releases of TensorFlow that it can be built for
#        tools/setup.sh --pythons R     print a line per Python that release R, e.g. 2.21, has wheels for, with the one here
#        tools/setup.sh --release       print the release of TensorFlow that this tree is built for
#        tools/setup.sh --check-release R  end with a sentence if it cannot be built for that one
#        tools/setup.sh --requirements  print requirements.txt for that release
#        tools/setup.sh --find-browser  print the browser
# One at a time: calls from one checkout wait for each other, and all of them for another user of the package manager.
set -u
cd "$(dirname "$0")/.." || exit 1

die() { echo "metal_ops: $*" >&2; exit 1; }
# How long to wait for another package manager, in seconds; Ubuntu's own updates take minutes after a start.
readonly PATIENCE=${METAL_OPS_SETUP_PATIENCE:-600}

# ---- TensorFlow and Python ------------------------------------------------------------------------------------------
# A line per release: it, TensorFlow's version, NumPy's, Python's.
releases() { sed -n 's/^ *"\(2\.[0-9]*\)": ("\([^"]*\)", "\([^"]*\)", "\([^"]*\)"),$/\1 \2 \3 \4/p' python/metal_ops/_version.py; }
check_release() {
  releases | grep -q "^$1 " ||
    die "TF=$1 is no release of TensorFlow that this can be built for; there are $(releases | awk '{ printf "%s%s", (NR > 1 ? ", " : ""), $1 }')."
}
pythons_of() { releases | sed -n "s/^$1 [^ ]* [^ ]* //p"; }

# Empty for an interpreter that does not run: a pyenv shim can be on PATH and have no Python.
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
# find_pythons VERSION...: the installed ones of these, in this order; of PYTHON alone, a version or an interpreter,
# where that is set.
find_pythons() {
  local version candidate only=${PYTHON:-}
  if [[ $only = 3.* ]]; then
    [[ " $* " = *" $only "* ]] || return 0
    set -- "$only" && only=
  fi
  for version; do
    for candidate in ${only:-"python$version" python3 "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$version".*/bin/python}; do
      [ "$(version_of "$candidate")" = "$version" ] && echo "$candidate" && break
    done
  done
}
# This tree's release: that of the copy that tools/other_release.sh made; else the oldest, and the newest where Python
# is too new for that. The release that .venv was made with counts, whatever came later.
release() {
  local default newest
  [ ! -e build/release ] || { cat build/release; return; }
  [ ! -x .venv/bin/python ] || local PYTHON=.venv/bin/python
  default=$(releases | head -1 | cut -d' ' -f1)
  newest=$(releases | tail -1 | cut -d' ' -f1)
  if [ -z "$(find_pythons $(pythons_of "$default"))" ] && [ -n "$(find_pythons $(pythons_of "$newest"))" ]; then
    echo "$newest"
  else
    echo "$default"
  fi
}
find_python() { find_pythons $(pythons_of "$(release)") | head -1 | grep .; }
requirements() {
  local release version numpy rest until without=
  read -r release version numpy rest < <(releases | grep "^$(release) ")
  until=$(sed -n 's/^TENSORFLOW_METAL_UNTIL = "\(.*\)"/\1/p' python/metal_ops/_version.py)
  releases | sed "/^$until /q" | grep -q "^$release " || without='/^tensorflow-metal==/d'
  sed -e "s/^\(tensorflow\(-cpu\)\{0,1\}==\)[0-9.]*/\1$version/" -e "s/^\(numpy==\)[0-9.]*/\1$numpy/" -e "$without" requirements.txt
}
# The Python that `apt-get install python3` would bring, e.g. 3.13; nothing where apt's lists are not
# there yet.
coming_python() { apt-cache policy python3 2>/dev/null | sed -n 's/^ *Candidate: *\([0-9]*\.[0-9]*\).*/\1/p'; }
no_python() {
  die "TensorFlow has wheels for Python 3.11, 3.12 and, from 2.20 on, 3.13 only and $1; get one of them, e.g. from pyenv or uv, and call 'make PYTHON=/path/to/python3.12 ...'."
}
# Ends here when no package can help.
require_python() {
  find_python >/dev/null && return
  [ -z "${PYTHON:-}" ] || no_python "PYTHON=$PYTHON is none for $(release)"
  local installed coming
  installed=$(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null)
  [ -z "$installed" ] || no_python "this system has $installed"
  coming=$(coming_python)
  case $coming in "" | 3.11 | 3.12 | 3.13) ;; *) no_python "this system's packages have $coming" ;; esac
}

# ---- the browser ----------------------------------------------------------------------------------------------------
# Any Chromium does, also Chrome. Tried, as Ubuntu's `chromium-browser` is a script that asks for snap.
find_browser() {
  local found
  found=$(command -v "${BROWSER_PROGRAM:-}" chromium-headless-shell chromium google-chrome-stable google-chrome chromium-browser \
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" |
    while read -r candidate; do
      "$candidate" --version >/dev/null 2>&1 && echo "$candidate" && break
    done)
  [ -n "$found" ] && echo "$found"
}
# How to get one where no package of that name is; empty where apt has it.
browser_by_hand() {
  case $(uname) in
    Darwin) echo "run 'brew install --cask google-chrome'" ;;
    *) grep -qs '^ID=debian' /etc/os-release ||
      echo "Ubuntu has it only as a snap: install one from https://www.google.com/chrome or set BROWSER_PROGRAM=/path/to/it" ;;
  esac
}

case "${1:-}" in
  --python)
    find_python && exit 0
    require_python
    die "Python 3.11, 3.12 or, for TensorFlow 2.20 and later, 3.13 is needed and was not found; install one (e.g. 'sudo apt-get install python3 python3-venv') or call 'make PYTHON=/path/to/python3.11 ...'." ;;
  --releases) releases | cut -d' ' -f1; exit 0 ;;
  --pythons)
    check_release "${2:-}"
    for version in $(pythons_of "$2"); do echo "$version" $(find_pythons "$version"); done
    exit 0 ;;
  --release) release; exit 0 ;;
  --check-release) check_release "${2:-}"; exit 0 ;;
  --requirements) requirements; exit 0 ;;
  --find-browser)
    find_browser && exit 0
    by_hand=$(browser_by_hand)
    die "no Chromium or Chrome was found, ${by_hand:-run 'tools/setup.sh --browser'}." ;;
esac

words=() optional=() list=words
for word; do
  case $word in
    --if-possible) list=optional ;;
    --metal | --sanitize | --browser | --tools | --npm | --bazel) if [ $list = words ]; then words+=("$word"); else optional+=("$word"); fi ;;
    *) die "tools/setup.sh does not know '$word'; its first lines say what it knows." ;;
  esac
done
# The browser alone needs no compiler.
if [ ${#words[@]} -eq 0 ] && [ ${#optional[@]} -gt 0 ] || [ "${words[*]-}" = --browser ]; then cpu=(); else cpu=(--cpu); fi

# ---- macOS ----------------------------------------------------------------------------------------------------------
# Homebrew is not called: its packages are the user's choice.
missing_on_macos() {
  case $1 in
    --cpu)
      command -v clang++ >/dev/null || echo "no compiler found; run 'xcode-select --install'."
      [ -e "$(brew --prefix 2>/dev/null)/include/hwy/highway.h" ] || echo "Highway is missing; run 'brew install highway'."
      find_python >/dev/null || echo "Python 3.11 or 3.12 is missing, or 3.13 for TensorFlow 2.20 and later; run 'brew install python@3.11'." ;;
    --metal)  # not among the command line tools
      xcrun -sdk macosx metal --version >/dev/null 2>&1 || echo "Apple's Metal compiler is missing; install Xcode from the App Store, then run 'sudo xcode-select -s /Applications/Xcode.app' and, from Xcode 26 on, 'xcodebuild -downloadComponent MetalToolchain'." ;;
    --npm) command -v npm >/dev/null || echo "npm is missing; run 'brew install node'." ;;
    --bazel) echo "Bazel cannot be downloaded; run 'brew install bazel' and set USE_BAZEL_VERSION to its path." ;;
    --browser) find_browser >/dev/null || echo "Chrome is missing; $(browser_by_hand)." ;;
  esac
}
if [ "$(uname)" = Darwin ]; then
  for word in ${cpu[@]+"${cpu[@]}"} ${words[@]+"${words[@]}"}; do
    sentence=$(missing_on_macos "$word" | head -1)
    [ -z "$sentence" ] || die "$sentence"
  done
  for word in ${optional[@]+"${optional[@]}"}; do
    missing_on_macos "$word" | sed 's/^/metal_ops: /' >&2
  done
  exit 0
fi

# ---- Linux ----------------------------------------------------------------------------------------------------------
# Missing packages are found by using them, not by asking the package manager: they may have come
# another way.
has_header() { echo "#include <$1>" | "${CXX:-g++}" -x c++ -E - >/dev/null 2>&1; }
# libobjc goes by the version of GCC: of the one that is there, or that `apt-get install g++` would bring.
gcc_major() {
  local major
  major=$("${CXX:-g++}" -dumpversion 2>/dev/null | cut -d. -f1)
  [ -n "$major" ] || major=$(apt-cache depends g++ 2>/dev/null | sed -n 's/^ *Depends: g++-\([0-9]*\)$/\1/p')
  echo "${major:-12}"
}
missing_packages() {
  local python word
  for word; do
    case $word in
      --cpu)
        command -v "${CXX:-g++}" >/dev/null || echo g++
        has_header hwy/highway.h || echo libhwy-dev
        if ! python=$(find_python); then
          echo python3 python3-venv
        elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
          "$python" -c 'import sys; print("python3.%d-venv" % sys.version_info[1])'
        fi ;;
      --metal)
        command -v clang++-19 >/dev/null || echo clang-19      # Objective-C++, and the shaders' compiler
        command -v ld.lld-19 >/dev/null || echo lld-19         # links shaders without a C toolchain
        command -v gnustep-config >/dev/null || echo libgnustep-base-dev  # Foundation
        [ -e "$("${CXX:-g++}" -print-file-name=include 2>/dev/null)/objc/objc.h" ] || echo "libobjc-$(gcc_major)-dev"
        has_header boost/context/fiber.hpp || echo libboost-context-dev ;;  # threadgroup barriers as fibers
      --sanitize)
        [ -n "$(ls "$(clang++-19 -print-resource-dir 2>/dev/null)"/lib/linux/libclang_rt.tsan-* 2>/dev/null)" ] || echo libclang-rt-19-dev ;;
      --tools)
        if ! command -v llvm-cov-19 >/dev/null || ! command -v llvm-profdata-19 >/dev/null; then echo llvm-19; fi
        command -v gdb >/dev/null || echo gdb ;;
      --npm) command -v npm >/dev/null || echo npm ;;
      --bazel) command -v bazel-4 >/dev/null || echo bazel-bootstrap ;;
      --browser) find_browser >/dev/null || echo chromium-headless-shell ;;  # the smallest of them
    esac
  done
}
collect() {
  missing=($(missing_packages ${cpu[@]+"${cpu[@]}"} ${words[@]+"${words[@]}"} | awk '!said[$0]++'))
  wanted=($(missing_packages ${optional[@]+"${optional[@]}"}))
}
say_untried() { echo "metal_ops: some tests cannot be tried: $1." >&2; }

# The browser where apt has none.
by_hand=$(browser_by_hand)
if [ -n "$by_hand" ] && ! find_browser >/dev/null; then
  case " ${words[*]-} " in *" --browser "*) die "a Chromium or Chrome is missing: $by_hand." ;; esac
  case " ${optional[*]-} " in *" --browser "*) say_untried "a Chromium or Chrome is missing: $by_hand" ;; esac
  optional=($(printf '%s\n' ${optional[@]+"${optional[@]}"} | grep -vx -e --browser))
fi

# The check before the lock: most calls find nothing missing, and have nothing to wait for.
nothing_missing() { collect && [ $((${#missing[@]} + ${#wanted[@]})) -eq 0 ]; }
nothing_missing && exit 0
if command -v flock >/dev/null; then
  mkdir -p build 2>/dev/null && exec 9>build/setup.lock || die "$PWD cannot be written; make the checkout your own ('chown') or clone it anew."
  flock 9
  nothing_missing && exit 0  # another call has installed it
fi
[ ${#cpu[@]} -eq 0 ] || require_python

# give_up <error> <remedy>: a failure only where the build cannot go on.
give_up() {
  [ ${#missing[@]} -eq 0 ] || die "$1; $2 and call make again."
  say_untried "$1; $2"
  exit 0
}
command -v apt-get >/dev/null || give_up "${missing[*]:-${wanted[*]}} missing and there is no apt here" "install them with your package manager"
all=("${missing[@]}" "${wanted[@]}")
if [ "$(id -u)" -eq 0 ]; then
  as_root=(env)
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
  as_root=(sudo)
else
  give_up "${missing[*]:-${wanted[*]}} missing" "run 'sudo apt-get install -y --no-install-recommends ${all[*]}' (as root)"
fi

# Waits for others: `apt-get install` can do that itself, `apt-get update` cannot.
log=$(mktemp) && trap 'rm -f "$log"' EXIT
apt_get() {
  local until=$((SECONDS + PATIENCE)) said=
  # The lock is not for the children of apt, such as daemons, which would hold it for good.
  while ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q -o DPkg::Lock::Timeout="$PATIENCE" "$@" >"$log" 2>&1 9>&-; do
    grep -q 'Could not get lock\|Unable to lock\|Unable to acquire' "$log" && [ $SECONDS -lt $until ] || return 1
    [ -n "$said" ] || echo "metal_ops: waiting for another package manager"
    said=1
    sleep 1
  done
}
install() { apt_get install -y --no-install-recommends "$@"; }
reason() { grep '^E: ' "$log" | tail -1 | sed 's/^E: *//; s/\.$//'; }

apt_get update || give_up "'apt-get update' failed: $(reason)" "check the network"
collect  # with apt's present lists
[ ${#cpu[@]} -eq 0 ] || require_python
all=(${missing[@]+"${missing[@]}"} ${wanted[@]+"${wanted[@]}"})
echo "metal_ops: installing ${all[*]}"
install "${all[@]}" && exit 0
if [ ${#missing[@]} -gt 0 ] && [ ${#wanted[@]} -gt 0 ] && install "${missing[@]}"; then
  missing=()
  install "${wanted[@]}" && exit 0
fi
give_up "'apt-get install ${missing[*]:-${wanted[*]}}' failed: $(reason)" "run it by hand to see why"
