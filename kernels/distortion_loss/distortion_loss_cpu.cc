// DistortionLoss and ScaleRays on the CPU.
//
// Equation 15 of mip-NeRF 360 (Barron et al. 2022). With interval middles m_i in order, lengths d_i
// and weights w_i of one ray:
//   loss = sum_ij w_i w_j |m_i - m_j| + 1/3 sum_i w_i^2 d_i = 2 sum_i w_i A_i + 1/3 sum_i w_i^2 d_i
//   A_i = sum over j < i of w_j (m_i - m_j) = A_{i-1} + W_{i-1} (m_i - m_{i-1})
//   with W_i = w_0 + ... + w_i, and B_i the same as A_i from the other end
//   d loss / d w_i = 2 (A_i + B_i) + 2/3 w_i d_i
//   d loss / d m_i = 2 w_i (sum of w before i - sum behind),  d loss / d d_i = 1/3 w_i^2
// All terms of A and B have one sign, so nothing cancels, wherever the ray begins. A ray is done by
// one thread, in double, so results do not depend on the number of threads.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "kernels/common/parallel.h"
#include "kernels/common/tf_packed_rays.h"
#include "kernels/distortion_loss/distortion_loss_checks.h"
#include "kernels/distortion_loss/distortion_loss_simd.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;

// Cycles that a sample takes, roughly.
constexpr int64_t kCycles = 8;

float* Floats(Tensor* tensor) { return static_cast<float*>(tensor->data()); }
const float* Floats(const Tensor& tensor) { return static_cast<const float*>(tensor.data()); }

class DistortionLossOp : public OpKernel {
 public:
  explicit DistortionLossOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("t_gradients", &t_gradients_));
  }

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckDistortionLoss(&shapes, InputShapes(context));
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& weights = context->input(0);
    PackedRays rays;
    OP_REQUIRES_OK(context, InitRays(type_string(), context->input(3), weights.shape(), &rays));
    const TensorShape t_shape = t_gradients_ ? weights.shape() : TensorShape({0});
    Tensor *loss, *slope, *starts_slope, *ends_slope;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({rays.n_rays()}), &loss));
    OP_REQUIRES_OK(context, context->allocate_output(1, weights.shape(), &slope));
    OP_REQUIRES_OK(context, context->allocate_output(2, t_shape, &starts_slope));
    OP_REQUIRES_OK(context, context->allocate_output(3, t_shape, &ends_slope));
    for (Tensor* tensor : {slope, starts_slope, ends_slope}) {
      if (!rays.covers_all()) std::memset(tensor->data(), 0, tensor->TotalBytes());
    }
    // Nobody may want the derivative: TensorFlow knows while it runs a graph.
    const bool with_slope = t_gradients_ || context->output_required(1);
    std::atomic<int64_t> bad_ray{-1};
    ParallelFor(context, rays.n_rays(), rays.Cycles(kCycles), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const RayRange range = rays[r];
        const DistortionRay ray = {Floats(weights) + range.start,
                                   Floats(context->input(1)) + range.start,
                                   Floats(context->input(2)) + range.start,
                                   with_slope ? Floats(slope) + range.start : nullptr,
                                   t_gradients_ ? Floats(starts_slope) + range.start : nullptr,
                                   t_gradients_ ? Floats(ends_slope) + range.start : nullptr,
                                   range.count};
        if (!DistortRay(ray, Floats(loss) + r)) bad_ray = r;
      }
    });
    OP_REQUIRES(context, bad_ray < 0,
                InvalidArgument(type_string(), ": t_starts and t_ends must ascend along each ray, ",
                                "got a sample before its forerunner on ray ", bad_ray.load(),
                                ". Sort the samples of a ray."));
  }

 private:
  bool t_gradients_ = false;
};

class ScaleRaysOp : public OpKernel {
 public:
  explicit ScaleRaysOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckScaleRays(&shapes, InputShapes(context));
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& slope = context->input(1);
    PackedRays rays;
    OP_REQUIRES_OK(context, InitRays(type_string(), context->input(2), slope.shape(), &rays));
    Tensor* gradient = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, slope.shape(), &gradient));
    if (!rays.covers_all()) std::memset(gradient->data(), 0, gradient->TotalBytes());
    const float* const g = Floats(context->input(0));
    ParallelFor(context, rays.n_rays(), rays.Cycles(1), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const RayRange ray = rays[r];
        const float* const from = Floats(slope) + ray.start;
        float* const to = Floats(gradient) + ray.start;
        for (int64_t i = 0; i < ray.count; ++i) to[i] = g[r] * from[i];
      }
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("DistortionLoss").Device(tensorflow::DEVICE_CPU), DistortionLossOp);
REGISTER_KERNEL_BUILDER(Name("ScaleRays").Device(tensorflow::DEVICE_CPU), ScaleRaysOp);

}  // namespace
}  // namespace metal_ops
