#!/usr/bin/env bash
# Runs op tests with the instrumented libraries that tools/sanitize/rules.mk has built: all op families forward and
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

suite() {  # suite <name> <environment> <tests...>
  local name=$1 environment=$2
  shift 2
  echo "  address sanitizer, $name"
  # shellcheck disable=SC2086
  env LD_PRELOAD="$LD_PRELOAD" $environment "$python" -m pytest -x -q -s --no-header -p no:cacheprovider "$@" \
    > "build/sanitize/$name.log" 2>&1 || { tail -60 "build/sanitize/$name.log"; exit 1; }
}

if [ $# -gt 0 ]; then
  LD_PRELOAD=$LD_PRELOAD exec "$python" -m pytest -s -p no:cacheprovider "$@"
fi
# All families but metal_kernel, whose kernels are its users', and fused_mlp, which has not been tried.
op_tests=(tests/test_hash_encode_invalid.py)
for folder in kernels/*/; do
  test=tests/test_$(basename "$folder").py
  case $test in *_metal_kernel.py | *_fused_mlp.py) ;; *) [ ! -e "$test" ] || op_tests+=("$test") ;; esac
done
on_device=tests/metal_kernels/on_device
# Two at a time: a process does little at once.
{
  suite planted "" tests/sanitize
  suite device "METAL_OPS_TEST_DEVICE_PROCESS=1 METAL_DEVICE_WRAPPER_TYPE=1" tests/device/on_device/test_{ops,state,stress}.py \
    $on_device/test_{zero_out,bad_calls,encodings}.py
} &
others=$!
trap 'kill $others 2>/dev/null || true' EXIT
suite ops "" "${op_tests[@]}"
suite pass "" tests/test_op_families.py tests/fusion/test_conditions.py -k "not threads"
wait $others
