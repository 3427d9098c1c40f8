#!/usr/bin/env bash
# Runs tests with the marker `instrumented` (pyproject.toml) on the libraries of tools/sanitize/rules.mk: all op families forward and
# backward on the CPU, bad arguments, the graph pass, the same on the device. The shaders are not instrumented; the
# device's half runs their checked variants, which refuse an access outside of a buffer.
# Usage: tools/sanitize/run.sh [pytest's arguments, in place of the suite]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$PWD/.venv/bin/python
tests=$PWD/tests

# detect_leaks=0: Python and TensorFlow keep thousands of things for the life of the process. hostmetal's own tests and
# the device's, which `make sanitize` runs, look for leaks.
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=suppressions=$tests/hostmetal/races.supp:report_signal_unsafe=0:exitcode=66
# Names lines where llvm-symbolizer, which is not among clang's runtimes, is missing.
symbolizer=$(command -v llvm-symbolizer-19 llvm-symbolizer addr2line | head -1 || true)
export ASAN_SYMBOLIZER_PATH=$symbolizer UBSAN_SYMBOLIZER_PATH=$symbolizer TSAN_SYMBOLIZER_PATH=$symbolizer
export METAL_OPS_SANITIZED=1 METAL_OPS_MSL=$PWD/hostmetal/msl PYTHONPATH=$PWD/build/sanitize/python
LD_PRELOAD=$(clang++-19 -print-file-name=libclang_rt.asan-x86_64.so)

suite() {  # suite <name> <environment> <markers of its tests>
  local name=$1 environment=$2 files
  files=$("$python" tools/choose_tests.py files "$3")
  echo "  address sanitizer, $name"
  # shellcheck disable=SC2086
  env LD_PRELOAD="$LD_PRELOAD" $environment "$python" -m pytest -x -q -s --no-header -p no:cacheprovider -m "$3" $files \
    > "build/sanitize/$name.log" 2>&1 || { tail -60 "build/sanitize/$name.log"; exit 1; }
}

if [ $# -gt 0 ]; then
  LD_PRELOAD=$LD_PRELOAD exec "$python" -m pytest -s -p no:cacheprovider "$@"
fi
# Side by side: a process does little at once.
{
  suite planted "" sanitize
  # The CPU's tests come again there and would take minutes: of the larger families only tests of the device are marked.
  suite device "METAL_OPS_TEST_DEVICE_PROCESS=1 METAL_DEVICE_WRAPPER_TYPE=1" "instrumented and shaders"
} &
suites=($!)
suite ops METAL_OPS_SIMD=emu128 "instrumented and ops" &
suites+=($!)
if grep -q avx512vl /proc/cpuinfo; then
  suite avx512 METAL_OPS_SIMD=avx3 avx512 &
  suites+=($!)
else
  echo "  address sanitizer, avx512: left out, this processor has none"
fi
# Products of bytes, which no name of METAL_OPS_SIMD stands for: Highway's AVX3_DL, of Ice Lake and Zen 4.
if grep -q 'avx512_vnni avx512_bitalg' /proc/cpuinfo; then
  suite avx512_bytes METAL_OPS_SIMD= avx512_bytes &
  suites+=($!)
else
  echo "  address sanitizer, avx512_bytes: left out, this processor has none"
fi
suite pass "" "instrumented and fusion" &
suites+=($!)
trap 'kill "${suites[@]}" 2>/dev/null || true' EXIT
for each in "${suites[@]}"; do wait "$each"; done
