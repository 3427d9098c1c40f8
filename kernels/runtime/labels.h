// Whether encoders say by labels whose they are, and launches by debug groups.

#ifndef METAL_OPS_KERNELS_RUNTIME_LABELS_H_
#define METAL_OPS_KERNELS_RUNTIME_LABELS_H_

#include <cstdlib>
#include <cstring>

namespace metal_ops {

// For captures, which METAL_CAPTURE_ENABLED=1 allows, and for the errors of METAL_OPS_LABELS=1.
inline bool Labelled() {
  const auto is_set = [](const char* variable) {
    const char* const text = getenv(variable);
    return text != nullptr && strcmp(text, "1") == 0;
  };
  static const bool labelled = is_set("METAL_CAPTURE_ENABLED") || is_set("METAL_OPS_LABELS");
  return labelled;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_LABELS_H_
