// What can be wrong with the shapes of a volume-rendering call, for every device.

#ifndef METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_CHECKS_H_
#define METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_CHECKS_H_

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/common/arg_shapes.h"
#include "kernels/common/packed_samples.h"

namespace metal_ops {

inline void CheckEarlyStop(ArgShapes* shapes, float early_stop_eps) {
  shapes->Require(early_stop_eps >= 0 && early_stop_eps < 1,
                  "early_stop_eps must be a transmittance in [0, 1), got " +
                      std::to_string(early_stop_eps) + ". 0 stops nowhere.");
}

// Transmittance below eps is optical thickness above -log(eps).
inline float MaxThickness(float early_stop_eps) {
  return early_stop_eps > 0 ? -std::log(early_stop_eps) : std::numeric_limits<float>::infinity();
}

// Empty stands for "there is none".
inline void ExpectOrEmpty(ArgShapes* shapes, const char* arg, const ArgShape& shape,
                          const std::vector<std::string>& dims) {
  for (const int64_t dim : shape.dims) {
    if (dim == 0) return;
  }
  shapes->Expect(arg, shape, dims);
}

// sigmas, rgbs, t_starts, t_ends, packed_info, background: `inputs[first...]`.
inline void CheckVolumeRender(ArgShapes* shapes, const std::vector<ArgShape>& inputs, int first) {
  const ArgShape& packed_info = inputs[first + 4];
  std::vector<std::string> samples = ExpectSamples(shapes, "sigmas", inputs[first], packed_info);
  if (samples.empty()) return;
  shapes->Expect("t_starts", inputs[first + 2], samples);
  shapes->Expect("t_ends", inputs[first + 3], samples);
  samples.push_back("channels");
  shapes->Expect("rgbs", inputs[first + 1], samples);
  const ArgShape& background = inputs[first + 5];
  if (background.rank() == 2) {
    shapes->Expect("background", background, {"rays", "channels"});
  } else if (background.rank() >= 0) {
    ExpectOrEmpty(shapes, "background", background, {"channels"});
  }
}

// The gradients that come before the inputs in VolumeRenderGrad.
inline void CheckVolumeRenderGradients(ArgShapes* shapes, const std::vector<ArgShape>& inputs) {
  if (inputs[5].rank() < 0) return;
  ExpectOrEmpty(shapes, "rgb_gradient", inputs[0], {"rays", "channels"});
  ExpectOrEmpty(shapes, "opacity_gradient", inputs[1], {"rays"});
  ExpectOrEmpty(shapes, "depth_gradient", inputs[2], {"rays"});
  ExpectOrEmpty(shapes, "depth_median_gradient", inputs[3], {"rays"});
  ExpectOrEmpty(shapes, "weights_gradient", inputs[4],
                inputs[5].rank() == 2 ? std::vector<std::string>{"rays", "samples"}
                                      : std::vector<std::string>{"samples"});
}

// sigmas, t_starts, t_ends, packed_info: `inputs[first...]`; before them, if first is 2, the
// gradients of weights and transmittance.
inline void CheckRenderWeights(ArgShapes* shapes, const std::vector<ArgShape>& inputs, int first) {
  const std::vector<std::string> samples =
      ExpectSamples(shapes, "sigmas", inputs[first], inputs[first + 3]);
  if (samples.empty()) return;
  shapes->Expect("t_starts", inputs[first + 1], samples);
  shapes->Expect("t_ends", inputs[first + 2], samples);
  if (first == 0) return;
  ExpectOrEmpty(shapes, "weights_gradient", inputs[0], samples);
  ExpectOrEmpty(shapes, "transmittance_gradient", inputs[1], samples);
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_CHECKS_H_
