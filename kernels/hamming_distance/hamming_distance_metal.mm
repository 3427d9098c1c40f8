// HammingDistance on the Metal device.

#include "kernels/hamming_distance/hamming_distance_call.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

Status HammingDistance(MetalCall& call) {
  const HammingParams params = ToHammingParams(call);
  int64_t others = 1;
  for (int dim = 2; dim < HAMMING_MOST_DIMS; ++dim) others *= params.sizes[dim];
  return call.Launch({"hamming_distance"}, Grid(params.sizes[0], params.sizes[1], others),
                     {{"a", Value(call.in(0)).Untyped()},
                      {"b", Value(call.in(1)).Untyped()},
                      {"distances", call.out(0)},
                      {"p", params}});
}
METAL_KERNEL("HammingDistance", HammingDistance);

}  // namespace
}  // namespace metal_ops
