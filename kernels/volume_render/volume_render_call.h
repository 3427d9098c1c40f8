// Checks of the kernels of every device for a volume-rendering call.

#ifndef METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_CALL_H_
#define METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_CALL_H_

#include <cmath>
#include <limits>

#include "kernels/runtime/op.h"

namespace metal_ops {

// Transmittance below eps is optical thickness above -log(eps).
inline float MaxThickness(const OpCall& call) {
  const float eps = call.Float("early_stop_eps");
  return eps > 0 ? -std::log(eps) : std::numeric_limits<float>::infinity();
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_CALL_H_
