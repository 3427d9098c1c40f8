// FrequencyEncode and FrequencyEncodeGrad on the Metal device.

#include "kernels/frequency_encode/frequency_encode_plan.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

Status FrequencyEncode(MetalCall& call) {
  if (call.out(0).num_elements() == 0) return Status();
  const FrequencyEncodeParams params = MakeFrequencyEncodeParams(call);
  return call.Launch({"frequency_encode", call.out(0).dtype()},
                     Grid::Flat(call.in(0).num_elements()),
                     {{"inputs", call.in(0)}, {"outputs", call.out(0)}, {"params", params}});
}
METAL_KERNEL("FrequencyEncode", FrequencyEncode);

Status FrequencyEncodeGrad(MetalCall& call) {
  if (call.out(0).num_elements() == 0) return Status();
  const FrequencyEncodeParams params = MakeFrequencyEncodeParams(call);
  return call.Launch({"frequency_encode_grad", call.in(0).dtype()},
                     Grid::Flat(call.in(1).num_elements()),
                     {{"d_outputs", call.in(0)},
                      {"inputs", call.in(1)},
                      {"inputs_gradient", call.out(0)},
                      {"params", params}});
}
METAL_KERNEL("FrequencyEncodeGrad", FrequencyEncodeGrad);

}  // namespace
}  // namespace metal_ops
