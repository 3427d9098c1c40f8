// TensorFlow learns of an error of METAL_OPS_SIMD while it loads the library: kernels would go on with
// another instruction set than was asked for.

#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op.h"

extern "C" const char* metal_ops_simd_error();

namespace metal_ops {
namespace {

// An op that cannot be registered is how TensorFlow's loader learns of it.
[[maybe_unused]] const bool refused = [] {
  const std::string error = metal_ops_simd_error();
  if (!error.empty()) {
    tensorflow::OpRegistry::Global()->Register(
        [error](tensorflow::OpRegistrationData*) { return absl::InvalidArgumentError(error); });
  }
  return true;
}();

}  // namespace
}  // namespace metal_ops
