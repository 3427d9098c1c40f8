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
# All declared families; of fused_mlp what calls the kernels, and not the layers.
op_tests=(tests/test_hash_encode_invalid.py
  tests/test_fused_mlp.py::test_{value_and_gradients,rows_do_not_depend_on_their_neighbours,bad_arguments,bad_gradients})
for declared in kernels/*/*_op.cc; do
  test=tests/test_$(basename "$declared" _op.cc).py
  [ "$test" = tests/test_fused_mlp.py ] || [ ! -e "$test" ] || op_tests+=("$test")
done
# On the device the CPU's tests come again and would take minutes: of the larger families only what is about the device.
ours=tests/metal_kernels/on_device
on_device=("$ours"/test_{zero_out,bad_calls,encodings}.py tests/device/on_device/test_{ops,state,stress}.py
  "$ours"/test_softshrink.py::test_equals_the_cpu
  "$ours"/test_rays.py::test_{good_arguments,bad_arguments,from_rays_to_weights_in_one_graph,from_many_threads}
  "$ours"/test_losses.py::test_{robust_loss,sigmoid_focal_loss,softmax_focal_loss,scale_slope}_equals_the_cpu
  "$ours"/test_hash_encode.py::test_{invalid_arguments,points_outside_the_unit_cube,from_many_threads}
  "$ours"/test_fused_matmul.py::test_{agrees_with_the_cpu_and_with_itself,bad_arguments_in_one_voice}
  "$ours"/test_fused_conv2d.py::test_bad_arguments_in_one_voice
  "$ours"/test_fused_mlp.py::test_{same_bits_from_run_to_run,same_sentences}
  "$ours"/test_fused_optimizer.py::test_{invalid_arguments,updates_from_many_threads_are_all_made})
# Side by side: a process does little at once.
{
  suite planted "" tests/sanitize
  suite device "METAL_OPS_TEST_DEVICE_PROCESS=1 METAL_DEVICE_WRAPPER_TYPE=1" "${on_device[@]}"
} &
suites=($!)
suite ops METAL_OPS_SIMD=emu128 "${op_tests[@]}" &
suites+=($!)
if grep -q avx512vl /proc/cpuinfo; then
  suite avx512 METAL_OPS_SIMD=avx3 tests/test_quantized_matmul.py &
  suites+=($!)
else
  echo "  address sanitizer, avx512: left out, this processor has none"
fi
# Products of bytes, which no name of METAL_OPS_SIMD stands for: Highway's AVX3_DL, of Ice Lake and Zen 4.
if grep -q 'avx512_vnni avx512_bitalg' /proc/cpuinfo; then
  suite avx512_bytes METAL_OPS_SIMD= tests/test_dynamic_matmul.py tests/test_quantized_matmul.py &
  suites+=($!)
else
  echo "  address sanitizer, avx512_bytes: left out, this processor has none"
fi
# test_the_graphs_above_were_fused counts on five times as many graphs.
suite pass "" tests/test_op_families.py tests/fusion/test_{conditions,patterns,random_graphs}.py \
  -k "not threads and not graphs_above" &
suites+=($!)
trap 'kill "${suites[@]}" 2>/dev/null || true' EXIT
for each in "${suites[@]}"; do wait "$each"; done
