// Metal kernels of ops that kernels/runtime/op.h declares: a function.
//
//   Status ScaleSlope(MetalCall& call) {
//     return call.Launch({"scale_slope", call.out(0).dtype()}, Grid::Flat(n), {{"slope",
//     call.in(1)}, ...});
//   }
//   METAL_KERNEL("ScaleSlope", ScaleSlope);
//
// It is called when attributes, types and shapes are right, with its outputs allocated. Its
// launches run after it has returned.

#ifndef METAL_OPS_KERNELS_RUNTIME_METAL_CALL_H_
#define METAL_OPS_KERNELS_RUNTIME_METAL_CALL_H_

#include <vector>

#include "kernels/runtime/encoder.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

class MetalCall : public OpCall {
 public:
  using OpCall::OpCall;

  const Tensor& in(int i) const { return inputs[i]; }
  const Tensor& out(int i) const { return outputs[i]; }
  std::vector<Tensor> inputs, outputs;

  // An output of a shape that only the kernel knows.
  virtual Status Allocate(int output, const Shape& shape) = 0;
  // Device memory that lives until the work encoded on it is done.
  virtual Status AllocateTemp(DType type, const Shape& shape, Tensor* tensor) = 0;
  virtual id<TF_MetalStream> stream() const = 0;

  // Encodes the launches of `body`: Status(Encoder&). With `wait`, returns when the device is done.
  template <typename Body>
  Status Encode(const Body& body, bool wait = false) {
    return EncodeOn(stream(), wait, body);
  }

  // A kernel's one launch.
  Status Launch(const Shader& shader, Grid grid, Arguments arguments,
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return Encode(
        [&](Encoder& encoder) { return encoder.Launch(shader, grid, arguments, file, line); });
  }

  // The errors of CheckAll and Require.
  Status Checked() const { return ToStatus(shapes); }
};

struct MetalKernel {
  MetalKernel(const char* op, Status (*kernel)(MetalCall&));
};

}  // namespace metal_ops

#define METAL_KERNEL(op, function)                                                          \
  [[maybe_unused]] static const ::metal_ops::MetalKernel METAL_OPS_OP_NAME(__COUNTER__)(op, \
                                                                                        function)

#endif  // METAL_OPS_KERNELS_RUNTIME_METAL_CALL_H_
