// The shapes of samples packed ray after ray, checked for the ops of every device.

#ifndef METAL_OPS_KERNELS_RAYS_PACKED_SAMPLES_H_
#define METAL_OPS_KERNELS_RAYS_PACKED_SAMPLES_H_

#include <string>
#include <vector>

#include "kernels/runtime/arg_shapes.h"

namespace metal_ops {

// The declaration of samples and packed_info that ops on packed samples share. `names` are the
// names of a sample array's dimensions from here on: {"samples"}, or {"rays", "samples"} if dense;
// none if the rank is not known yet.
inline std::vector<std::string> ExpectSamples(ArgShapes* shapes, const char* arg,
                                              const ArgShape& samples,
                                              const ArgShape& packed_info) {
  const std::string remedy =
      "Give packed_info [rays, 2] for packed samples, and [0, 2] for dense ones.";
  if (samples.rank() == 2) {
    shapes->Expect(arg, samples, {"rays", "samples"});
    shapes->Expect("packed_info", packed_info, {"0", "2"}, remedy);
    return {"rays", "samples"};
  }
  if (samples.rank() < 0) return {};
  if (samples.rank() == 1) shapes->Expect("packed_info", packed_info, {"rays", "2"}, remedy);
  shapes->Require(samples.rank() == 1,
                  std::string(arg) + " must have shape [samples] (packed) or [rays, samples] " +
                      "(dense), got " + ToText(samples) + ".");
  shapes->Expect(arg, samples, {"samples"});
  return {"samples"};
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RAYS_PACKED_SAMPLES_H_
