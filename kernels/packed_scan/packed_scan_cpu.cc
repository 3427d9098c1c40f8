// PackedScan, PackedProdGrad and PackRayIndices on the CPU.
//
// A ray is done by one thread, so results do not depend on the number of threads. Sums and products
// run in double and are rounded once.

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/common/parallel.h"
#include "kernels/common/tf_float_types.h"
#include "kernels/common/tf_packed_rays.h"
#include "kernels/packed_scan/packed_scan_checks.h"
#include "kernels/packed_scan/packed_scan_simd.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

// Cycles that a sample takes, roughly.
constexpr int64_t kScanCycles = 2;
constexpr int64_t kProdGradCycles = 5;

class ScanBase : public OpKernel {
 public:
  explicit ScanBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("exclusive", &kind_.exclusive));
    OP_REQUIRES_OK(context, context->GetAttr("reverse", &kind_.reverse));
  }

 protected:
  // Calls `work(rays, first ray, last ray + 1, results)` for several rays at a time.
  template <typename Work>
  void ForRays(OpKernelContext* context, int64_t cycles, const Work& work) {
    ArgShapes shapes(type_string());
    CheckPackedScan(&shapes, InputShapes(context));
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const int n = context->num_inputs();
    const tensorflow::TensorShape& samples = context->input(n - 2).shape();
    PackedRays rays;
    OP_REQUIRES_OK(context, InitRays(type_string(), context->input(n - 1), samples, &rays));
    Tensor* out = nullptr;
    if (rays.covers_all()) {
      // In place, where nobody else wants the input.
      OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, samples, &out));
    } else {
      OP_REQUIRES_OK(context, context->allocate_output(0, samples, &out));
      // Not memset: an empty tensor has no address.
      std::fill_n(static_cast<char*>(out->data()), out->TotalBytes(), '\0');
    }
    if (rays.n_samples() == 0) return;  // however many rays there are
    const MutableFloatArray results = ToMutableFloatArray(out);
    ParallelFor(context, rays.n_rays(), rays.Cycles(cycles),
                [&](int64_t begin, int64_t end) { work(rays, begin, end, results); });
  }

  ScanKind kind_ = {};
};

class PackedScanOp : public ScanBase {
 public:
  explicit PackedScanOp(OpKernelConstruction* context) : ScanBase(context) {
    std::string reduction;
    OP_REQUIRES_OK(context, context->GetAttr("reduction", &reduction));
    kind_.sum = reduction == "sum";
  }

  void Compute(OpKernelContext* context) override {
    const FloatArray in = ToFloatArray(context->input(0));
    ForRays(context, kScanCycles,
            [&](const PackedRays& rays, int64_t begin, int64_t end, const MutableFloatArray& out) {
              ScanRays(kind_, rays, begin, end, in, out);
            });
  }
};

class PackedProdGradOp : public ScanBase {
 public:
  using ScanBase::ScanBase;

  void Compute(OpKernelContext* context) override {
    const FloatArray g = ToFloatArray(context->input(0)), x = ToFloatArray(context->input(1));
    ForRays(context, kProdGradCycles,
            [&](const PackedRays& rays, int64_t begin, int64_t end, const MutableFloatArray& out) {
              ProdGradRays(kind_, rays, begin, end, g, x, out);
            });
  }
};

template <typename I>
class PackRayIndicesOp : public OpKernel {
 public:
  explicit PackRayIndicesOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckPackRayIndices(&shapes, InputShapes(context));
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const int64_t n_samples = shapes.Size("samples");
    I n_rays;
    std::memcpy(&n_rays, context->input(1).data(), sizeof(n_rays));
    CheckRayCount(&shapes, n_rays);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    Tensor* packed_info = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {n_rays, 2}, &packed_info));
    const std::string error =
        PackRayIndices(type_string(), static_cast<const I*>(context->input(0).data()), n_samples,
                       n_rays, static_cast<I*>(packed_info->data()));
    OP_REQUIRES(context, error.empty(), InvalidArgument(error));
  }
};

#define REGISTER_SCANS(T)                                                                      \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("PackedScan").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), PackedScanOp); \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("PackedProdGrad").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"),            \
      PackedProdGradOp)
REGISTER_SCANS(float);
REGISTER_SCANS(Eigen::half);
REGISTER_SCANS(Eigen::bfloat16);
#undef REGISTER_SCANS

REGISTER_KERNEL_BUILDER(
    Name("PackRayIndices").Device(tensorflow::DEVICE_CPU).TypeConstraint<int32_t>("Tindices"),
    PackRayIndicesOp<int32_t>);
REGISTER_KERNEL_BUILDER(
    Name("PackRayIndices").Device(tensorflow::DEVICE_CPU).TypeConstraint<int64_t>("Tindices"),
    PackRayIndicesOp<int64_t>);

}  // namespace
}  // namespace metal_ops
