// FrequencyEncode and FrequencyEncodeGrad on the CPU. A point is done by one thread: deterministic.

#include "kernels/frequency_encode/frequency_encode_plan.h"
#include "kernels/frequency_encode/frequency_encode_simd.h"

namespace metal_ops {
namespace {

int64_t Cycles(const OpCall& call) { return 5 + call.Size("dims") * FrequencyColumns(call) * 3; }

void FrequencyEncode(CpuCall& call) {
  if (call.outputs[0].n_elements == 0) return;
  const FrequencyEncodeParams params = MakeFrequencyEncodeParams(call);
  call.ParallelFor(call.Size("points"), Cycles(call), [&](int64_t begin, int64_t end) {
    EncodeFrequencies(params, call.in<float>(0), begin, end, call.float_out(0));
  });
}
CPU_KERNEL("FrequencyEncode", FrequencyEncode);

void FrequencyEncodeGrad(CpuCall& call) {
  if (call.outputs[0].n_elements == 0) return;
  const FrequencyEncodeParams params = MakeFrequencyEncodeParams(call);
  call.ParallelFor(call.Size("points"), Cycles(call), [&](int64_t begin, int64_t end) {
    DifferentiateFrequencies(params, call.floats(0), call.in<float>(1), begin, end,
                             call.out<float>(0));
  });
}
CPU_KERNEL("FrequencyEncodeGrad", FrequencyEncodeGrad);

}  // namespace
}  // namespace metal_ops
