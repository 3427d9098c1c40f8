// VolumeRender, RenderWeights and their gradients on the CPU: rays are shared out on TensorFlow's
// intra-op pool.
//
// A ray is done by one thread, so results do not depend on the number of threads.

#include <algorithm>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/common/tf_float_types.h"
#include "kernels/common/tf_packed_rays.h"
#include "kernels/volume_render/volume_render_checks.h"
#include "kernels/volume_render/volume_render_simd.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Cycles that a sample takes, roughly: two exponentials in vectors, two serial additions.
constexpr int64_t kForwardCycles = 15;
constexpr int64_t kBackwardCycles = 30;

const float* Floats(const Tensor& tensor) {
  return tensor.NumElements() == 0 ? nullptr : static_cast<const float*>(tensor.data());
}

float* Floats(Tensor* tensor) { return static_cast<float*>(tensor->data()); }

// What the four ops share: attributes, and the samples.
class RenderBase : public OpKernel {
 public:
  explicit RenderBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("early_stop_eps", &early_stop_eps_));
    OP_REQUIRES_OK(context, context->GetAttr("t_gradients", &t_gradients_));
    ArgShapes attrs(type_string());
    CheckEarlyStop(&attrs, early_stop_eps_);
    OP_REQUIRES_OK(context, ToStatus(attrs));
  }

 protected:
  // Samples of no ray.
  static void ClearUncovered(const PackedRays& rays, Tensor* samples) {
    if (rays.covers_all()) return;
    // Not memset: an empty tensor has no address.
    std::fill_n(static_cast<char*>(samples->data()), samples->TotalBytes(), '\0');
  }

  float early_stop_eps_ = 0;
  bool t_gradients_ = false;
};

class VolumeRenderOp : public RenderBase {
 public:
  using RenderBase::RenderBase;

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckVolumeRender(&shapes, InputShapes(context), 0);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& sigmas = context->input(0);
    const Tensor& background = context->input(5);
    PackedRays rays;
    OP_REQUIRES_OK(context, InitRays(type_string(), context->input(4), sigmas.shape(), &rays));
    const int64_t n_rays = rays.n_rays(), n_channels = shapes.Size("channels");

    Tensor *rgb, *opacity, *depth, *median, *weights;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({n_rays, n_channels}), &rgb));
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({n_rays}), &opacity));
    OP_REQUIRES_OK(context, context->allocate_output(2, TensorShape({n_rays}), &depth));
    OP_REQUIRES_OK(context, context->allocate_output(3, TensorShape({n_rays}), &median));
    OP_REQUIRES_OK(context, context->allocate_output(4, sigmas.shape(), &weights));
    ClearUncovered(rays, weights);

    RenderInputs in = {};
    in.sigmas = ToFloatArray(sigmas);
    in.rgbs = ToFloatArray(context->input(1));
    in.t_starts = Floats(context->input(2));
    in.t_ends = Floats(context->input(3));
    in.n_channels = n_channels;
    in.max_thickness = MaxThickness(early_stop_eps_);
    const float* const behind = Floats(background);
    const int64_t behind_stride = background.dims() == 2 ? n_channels : 0;
    ParallelFor(context, n_rays, rays.Cycles(kForwardCycles), [&](int64_t begin, int64_t end) {
      RayScratch scratch;
      for (int64_t r = begin; r < end; ++r) {
        const RayRange range = rays[r];
        const RenderedRay ray = {behind == nullptr ? nullptr : behind + r * behind_stride,
                                 Floats(rgb) + r * n_channels, Floats(opacity) + r,
                                 Floats(depth) + r, Floats(median) + r};
        RenderRay(in, range.start, range.count, Floats(weights), nullptr, &ray, &scratch);
      }
    });
  }
};

class VolumeRenderGradOp : public RenderBase {
 public:
  using RenderBase::RenderBase;

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    const std::vector<ArgShape> inputs = InputShapes(context);
    CheckVolumeRender(&shapes, inputs, 5);
    CheckVolumeRenderGradients(&shapes, inputs);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& sigmas = context->input(5);
    const Tensor& rgbs = context->input(6);
    const Tensor& background = context->input(10);
    PackedRays rays;
    OP_REQUIRES_OK(context, InitRays(type_string(), context->input(9), sigmas.shape(), &rays));
    const int64_t n_rays = rays.n_rays(), n_channels = shapes.Size("channels");

    const TensorShape t_shape = t_gradients_ ? sigmas.shape() : TensorShape({0});
    Tensor *to_sigmas, *to_rgbs, *to_background, *to_starts, *to_ends, behind;
    OP_REQUIRES_OK(context, context->allocate_output(0, sigmas.shape(), &to_sigmas));
    OP_REQUIRES_OK(context, context->allocate_output(1, rgbs.shape(), &to_rgbs));
    OP_REQUIRES_OK(context, context->allocate_output(2, background.shape(), &to_background));
    OP_REQUIRES_OK(context, context->allocate_output(3, t_shape, &to_starts));
    OP_REQUIRES_OK(context, context->allocate_output(4, t_shape, &to_ends));
    OP_REQUIRES_OK(context,
                   context->allocate_temp(tensorflow::DT_FLOAT, TensorShape({n_rays}), &behind));
    for (Tensor* tensor : {to_sigmas, to_rgbs, to_starts, to_ends}) ClearUncovered(rays, tensor);

    RenderInputs in = {};
    in.sigmas = ToFloatArray(sigmas);
    in.rgbs = ToFloatArray(rgbs);
    in.t_starts = Floats(context->input(7));
    in.t_ends = Floats(context->input(8));
    in.n_channels = n_channels;
    in.max_thickness = MaxThickness(early_stop_eps_);
    SampleGradients to = {};
    to.sigmas = ToMutableFloatArray(to_sigmas);
    to.rgbs = ToMutableFloatArray(to_rgbs);
    to.t_starts = t_gradients_ ? Floats(to_starts) : nullptr;
    to.t_ends = t_gradients_ ? Floats(to_ends) : nullptr;
    const float* const from_rgb = Floats(context->input(0));
    const float* const from_opacity = Floats(context->input(1));
    const float* const from_depth = Floats(context->input(2));
    const float* const from_median = Floats(context->input(3));
    const float* const from_weights = Floats(context->input(4));
    const float* const light = Floats(background);
    const int64_t light_stride = background.dims() == 2 ? n_channels : 0;
    // Not empty: a null pointer stands for "no colours", and there may be no channels.
    const std::vector<float> no_rgb(n_channels + 1, 0.0f);
    ParallelFor(context, n_rays, rays.Cycles(kBackwardCycles), [&](int64_t begin, int64_t end) {
      RayScratch scratch;
      for (int64_t r = begin; r < end; ++r) {
        const RayRange range = rays[r];
        RayGradients from = {};
        from.rgb = from_rgb == nullptr ? no_rgb.data() : from_rgb + r * n_channels;
        from.opacity = from_opacity == nullptr ? 0.0f : from_opacity[r];
        from.depth = from_depth == nullptr ? 0.0f : from_depth[r];
        from.depth_median = from_median == nullptr ? 0.0f : from_median[r];
        from.weights = from_weights;
        Floats(&behind)[r] = DifferentiateRay(in, range.start, range.count,
                                              light == nullptr ? nullptr : light + r * light_stride,
                                              from, to, &scratch);
      }
    });

    // d loss / d background = T_end d loss / d rgb; one background for all rays: their sum, in
    // order.
    if (background.NumElements() == 0) return;
    float* const out = Floats(to_background);
    std::vector<double> sum(light_stride == 0 ? n_channels : 0);
    for (int64_t r = 0; r < n_rays; ++r) {
      for (int64_t c = 0; c < n_channels; ++c) {
        const float g = from_rgb == nullptr ? 0.0f : from_rgb[r * n_channels + c];
        if (light_stride == 0) {
          sum[c] += static_cast<double>(Floats(&behind)[r]) * g;
        } else {
          out[r * n_channels + c] = Floats(&behind)[r] * g;
        }
      }
    }
    for (size_t c = 0; c < sum.size(); ++c) out[c] = static_cast<float>(sum[c]);
  }
};

class RenderWeightsOp : public RenderBase {
 public:
  using RenderBase::RenderBase;

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckRenderWeights(&shapes, InputShapes(context), 0);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& sigmas = context->input(0);
    PackedRays rays;
    OP_REQUIRES_OK(context, InitRays(type_string(), context->input(3), sigmas.shape(), &rays));
    Tensor *weights, *transmittance;
    OP_REQUIRES_OK(context, context->allocate_output(0, sigmas.shape(), &weights));
    OP_REQUIRES_OK(context, context->allocate_output(1, sigmas.shape(), &transmittance));
    ClearUncovered(rays, weights);
    ClearUncovered(rays, transmittance);
    if (rays.n_samples() == 0) return;  // however many rays there are

    RenderInputs in = {};
    in.sigmas = ToFloatArray(sigmas);
    in.t_starts = Floats(context->input(1));
    in.t_ends = Floats(context->input(2));
    in.max_thickness = MaxThickness(early_stop_eps_);
    ParallelFor(context, rays.n_rays(), rays.Cycles(kForwardCycles),
                [&](int64_t begin, int64_t end) {
                  RayScratch scratch;
                  for (int64_t r = begin; r < end; ++r) {
                    RenderRay(in, rays[r].start, rays[r].count, Floats(weights),
                              Floats(transmittance), nullptr, &scratch);
                  }
                });
  }
};

class RenderWeightsGradOp : public RenderBase {
 public:
  using RenderBase::RenderBase;

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckRenderWeights(&shapes, InputShapes(context), 2);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& sigmas = context->input(2);
    PackedRays rays;
    OP_REQUIRES_OK(context, InitRays(type_string(), context->input(5), sigmas.shape(), &rays));
    const TensorShape t_shape = t_gradients_ ? sigmas.shape() : TensorShape({0});
    Tensor *to_sigmas, *to_starts, *to_ends;
    OP_REQUIRES_OK(context, context->allocate_output(0, sigmas.shape(), &to_sigmas));
    OP_REQUIRES_OK(context, context->allocate_output(1, t_shape, &to_starts));
    OP_REQUIRES_OK(context, context->allocate_output(2, t_shape, &to_ends));
    for (Tensor* tensor : {to_sigmas, to_starts, to_ends}) ClearUncovered(rays, tensor);
    if (rays.n_samples() == 0) return;

    RenderInputs in = {};
    in.sigmas = ToFloatArray(sigmas);
    in.t_starts = Floats(context->input(3));
    in.t_ends = Floats(context->input(4));
    in.max_thickness = MaxThickness(early_stop_eps_);
    RayGradients from = {};
    from.weights = Floats(context->input(0));
    from.transmittance = Floats(context->input(1));
    SampleGradients to = {};
    to.sigmas = ToMutableFloatArray(to_sigmas);
    to.t_starts = t_gradients_ ? Floats(to_starts) : nullptr;
    to.t_ends = t_gradients_ ? Floats(to_ends) : nullptr;
    ParallelFor(context, rays.n_rays(), rays.Cycles(kBackwardCycles),
                [&](int64_t begin, int64_t end) {
                  RayScratch scratch;
                  for (int64_t r = begin; r < end; ++r) {
                    DifferentiateRay(in, rays[r].start, rays[r].count, nullptr, from, to, &scratch);
                  }
                });
  }
};

REGISTER_KERNEL_BUILDER(Name("VolumeRender").Device(tensorflow::DEVICE_CPU), VolumeRenderOp);
REGISTER_KERNEL_BUILDER(Name("VolumeRenderGrad").Device(tensorflow::DEVICE_CPU),
                        VolumeRenderGradOp);
REGISTER_KERNEL_BUILDER(Name("RenderWeights").Device(tensorflow::DEVICE_CPU), RenderWeightsOp);
REGISTER_KERNEL_BUILDER(Name("RenderWeightsGrad").Device(tensorflow::DEVICE_CPU),
                        RenderWeightsGradOp);

}  // namespace
}  // namespace metal_ops
