#!/usr/bin/env bash
# Installs the system packages that the build needs, or says in one sentence which command does.
# Usage: tools/setup.sh            what the CPU ops need
#        tools/setup.sh --metal    what hostmetal, the Metal kernels and the device need besides (Linux)
#        tools/setup.sh --sanitize  the runtimes of clang's sanitizers, which `make sanitize` links (Linux)
#        tools/setup.sh --browser  the headless browser that the HTML view of fusions is tested in; prints its path
#        tools/setup.sh --npm      npm, which bazelisk comes from
#        tools/setup.sh --bazel    Debian's Bazel, where none can be downloaded
#        tools/setup.sh --python   print the interpreter to make .venv with
set -u

die() { echo "metal_ops: $*" >&2; exit 1; }

# Any interpreter that TensorFlow 2.18 has wheels for. A pyenv shim can be on PATH and not run, so try it.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3.12 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

if [ "${1:-}" = --python ]; then
  find_python || die "Python 3.11 or 3.12 is needed and was not found; install one (e.g. 'sudo apt-get install python3 python3-venv') or call 'make PYTHON=/path/to/python3.11 ...'."
  exit 0
fi

# Any Chromium does, also Chrome. Tried, as Ubuntu's `chromium-browser` is a script that asks for snap.
find_browser() {
  command -v "${BROWSER_PROGRAM:-}" chromium-headless-shell chromium google-chrome-stable google-chrome chromium-browser \
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" |
    while read -r candidate; do
      "$candidate" --version >/dev/null 2>&1 && echo "$candidate" && break
    done
}
if [ "${1:-}" = --browser ] && [ -n "$(find_browser)" ]; then
  find_browser
  exit 0
fi

if [ "$(uname)" = Darwin ]; then
  [ "${1:-}" != --browser ] || die "Chrome is missing; run 'brew install --cask google-chrome'."
  command -v clang++ >/dev/null || die "no compiler found; run 'xcode-select --install'."
  [ -e "$(brew --prefix 2>/dev/null)/include/hwy/highway.h" ] || die "Highway is missing; run 'brew install highway'."
  find_python >/dev/null || die "Python 3.11 or 3.12 is missing; run 'brew install python@3.11'."
  case "${1:-}" in
    --metal)  # not among the command line tools
      xcrun -sdk macosx metal --version >/dev/null 2>&1 || die "Apple's Metal compiler is missing; install Xcode from the App Store, then run 'sudo xcode-select -s /Applications/Xcode.app' and, from Xcode 26 on, 'xcodebuild -downloadComponent MetalToolchain'." ;;
    --npm) command -v npm >/dev/null || die "npm is missing; run 'brew install node'." ;;
    --bazel) die "Bazel cannot be downloaded; run 'brew install bazel' and set USE_BAZEL_VERSION to its path." ;;
  esac
  exit 0
fi

# What is missing is found by using it, not by asking the package manager: it may have come another way.
has_header() { echo "#include <$1>" | "${CXX:-g++}" -x c++ -E - >/dev/null 2>&1; }
missing=()
if [ "${1:-}" = --browser ]; then
  grep -qs '^ID=debian' /etc/os-release ||
    die "the tests of the HTML view need a Chromium or Chrome (Ubuntu has it only as a snap): install one from https://www.google.com/chrome or set BROWSER_PROGRAM=/path/to/it."
  missing+=(chromium-headless-shell)  # the smallest of them
elif [ "${1:-}" = --sanitize ]; then
  [ -n "$(ls "$(clang++-19 -print-resource-dir 2>/dev/null)"/lib/linux/libclang_rt.tsan-* 2>/dev/null)" ] || missing+=(libclang-rt-19-dev)
elif [ "${1:-}" = --npm ]; then
  command -v npm >/dev/null || missing+=(npm)
elif [ "${1:-}" = --bazel ]; then
  command -v bazel-4 >/dev/null || missing+=(bazel-bootstrap)
else
  command -v "${CXX:-g++}" >/dev/null || missing+=(g++)
  has_header hwy/highway.h || missing+=(libhwy-dev)
  if [ "${1:-}" = --metal ]; then
    command -v clang++-19 >/dev/null || missing+=(clang-19)      # Objective-C++, and the shaders' compiler
    command -v ld.lld-19 >/dev/null || missing+=(lld-19)         # links shaders without a C toolchain
    command -v gnustep-config >/dev/null || missing+=(libgnustep-base-dev)  # Foundation
    gcc_major=$("${CXX:-g++}" -dumpversion 2>/dev/null | cut -d. -f1)
    [ -e "$("${CXX:-g++}" -print-file-name=include 2>/dev/null)/objc/objc.h" ] || missing+=("libobjc-${gcc_major:-12}-dev")
    has_header boost/context/fiber.hpp || missing+=(libboost-context-dev)  # threadgroup barriers as fibers
  fi
  python=$(find_python) || missing+=(python3)
  "${python:-false}" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
fi
[ ${#missing[@]} -eq 0 ] && exit 0

run="apt-get install -y --no-install-recommends ${missing[*]}"
command -v apt-get >/dev/null || die "${missing[*]} missing and there is no apt here; install them with your package manager and call make again."
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
  as_root=(sudo)
else
  die "${missing[*]} missing; run 'sudo $run' (as root) and call make again."
fi
echo "metal_ops: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q >/dev/null || die "'apt-get update' failed; check the network and call make again."
# shellcheck disable=SC2086
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $run >/dev/null || die "'$run' failed; run it by hand to see why."
[ "${1:-}" != --browser ] || find_browser
