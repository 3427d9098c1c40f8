// PackedScan, PackedProdGrad and PackRayIndices on the CPU.
//
// A ray is done by one thread, in order, so results do not depend on the number of threads. Sums
// and products run in double: that costs nothing here, as each waits for the one before.

#include <cstring>
#include <string>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/common/tf_packed_rays.h"
#include "kernels/packed_scan/packed_scan_checks.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

constexpr int64_t kScanCycles = 6;

struct Sum {
  static constexpr double kStart = 0.0;
  static double Join(double a, double b) { return a + b; }
};

struct Product {
  static constexpr double kStart = 1.0;
  static double Join(double a, double b) { return a * b; }
};

// `step` is 1, or -1 from a ray's end, where `in` and `out` point to the last sample.
template <typename Reduction, typename T>
void ScanRay(const T* in, int64_t count, int64_t step, bool exclusive, T* out) {
  double value = Reduction::kStart;
  for (int64_t i = 0; i < count; ++i, in += step, out += step) {
    const double next = Reduction::Join(value, static_cast<float>(*in));
    *out = static_cast<T>(static_cast<float>(exclusive ? value : next));
    value = next;
  }
}

// d loss / d x_i = P_i R_i with P_i = product of x_j before i, and R_i = sum over the outputs j
// that x_i is in, of g_j times all other factors behind i: R_i = g_i + x_{i+1} R_{i+1} (inclusive),
// R_i = g_{i+1} + x_{i+1} R_{i+1} (exclusive).
template <typename T>
void ProdGradRay(const T* g, const T* x, int64_t count, int64_t step, bool exclusive,
                 std::vector<double>* before, T* out) {
  before->resize(count);
  double product = 1.0;
  for (int64_t i = 0; i < count; ++i) {
    (*before)[i] = product;
    product *= static_cast<float>(x[i * step]);
  }
  double tail = 0.0;
  for (int64_t i = count - 1; i >= 0; --i) {
    const double g_i = static_cast<float>(g[i * step]);
    if (!exclusive) tail += g_i;
    out[i * step] = static_cast<T>(static_cast<float>((*before)[i] * tail));
    if (exclusive) tail = g_i + static_cast<float>(x[i * step]) * tail;
    if (!exclusive) tail *= static_cast<float>(x[i * step]);
  }
}

template <typename T>
const T* Data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.data());
}

class ScanBase : public OpKernel {
 public:
  explicit ScanBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("exclusive", &exclusive_));
    OP_REQUIRES_OK(context, context->GetAttr("reverse", &reverse_));
  }

 protected:
  // Calls `work(first sample, count, step)` for each ray, several rays at a time.
  template <typename Work>
  void ForRays(OpKernelContext* context, Tensor** out, const Work& work) {
    ArgShapes shapes(type_string());
    CheckPackedScan(&shapes, InputShapes(context));
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const int n = context->num_inputs();
    PackedRays rays;
    OP_REQUIRES_OK(context, InitRays(type_string(), context->input(n - 1),
                                     context->input(n - 2).shape(), &rays));
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(n - 2).shape(), out));
    if (!rays.covers_all()) std::memset((*out)->data(), 0, (*out)->TotalBytes());
    ParallelFor(context, rays.n_rays(), rays.Cycles(kScanCycles), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const RayRange ray = rays[r];
        if (ray.count == 0) continue;
        work(reverse_ ? ray.start + ray.count - 1 : ray.start, ray.count, reverse_ ? -1 : 1);
      }
    });
  }

  bool exclusive_ = false;
  bool reverse_ = false;
};

template <typename T>
class PackedScanOp : public ScanBase {
 public:
  explicit PackedScanOp(OpKernelConstruction* context) : ScanBase(context) {
    std::string reduction;
    OP_REQUIRES_OK(context, context->GetAttr("reduction", &reduction));
    sum_ = reduction == "sum";
  }

  void Compute(OpKernelContext* context) override {
    const T* const in = Data<T>(context->input(0));
    Tensor* outputs = nullptr;
    ForRays(context, &outputs, [&](int64_t first, int64_t count, int64_t step) {
      T* const out = static_cast<T*>(outputs->data()) + first;
      if (sum_) {
        ScanRay<Sum>(in + first, count, step, exclusive_, out);
      } else {
        ScanRay<Product>(in + first, count, step, exclusive_, out);
      }
    });
  }

 private:
  bool sum_ = true;
};

template <typename T>
class PackedProdGradOp : public ScanBase {
 public:
  using ScanBase::ScanBase;

  void Compute(OpKernelContext* context) override {
    const T* const g = Data<T>(context->input(0));
    const T* const x = Data<T>(context->input(1));
    Tensor* gradient = nullptr;
    ForRays(context, &gradient, [&](int64_t first, int64_t count, int64_t step) {
      thread_local std::vector<double> before;
      ProdGradRay(g + first, x + first, count, step, exclusive_, &before,
                  static_cast<T*>(gradient->data()) + first);
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
    const std::string error = PackRayIndices(type_string(), Data<I>(context->input(0)), n_samples,
                                             n_rays, static_cast<I*>(packed_info->data()));
    OP_REQUIRES(context, error.empty(), InvalidArgument(error));
  }
};

#define REGISTER_SCANS(T)                                                                         \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("PackedScan").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), PackedScanOp<T>); \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("PackedProdGrad").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"),               \
      PackedProdGradOp<T>)
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
