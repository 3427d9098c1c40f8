// FractionalMaxPool and its gradient: windows of k and k + 1 rows and columns, in an order that a seed gives.

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "device/kernels/layout.h"
#include "device/kernels/nn/fractional_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"
#include "tensorflow/core/lib/random/random_distributions.h"

namespace metal_ops {
namespace {

using tensorflow::random::PhiloxRandom;

// Where windows begin, and the input's end: out + 1 numbers. Graham 2014, "Fractional max-pooling", by the
// random numbers that TensorFlow takes.
std::vector<int64_t> Borders(int64_t in, int64_t out, bool pseudo_random, PhiloxRandom* generator) {
  PhiloxRandom own = *generator;
  std::vector<int64_t> sizes(static_cast<size_t>(out), in / out);
  if (pseudo_random) {
    generator->Skip(1);
    const double alpha = static_cast<double>(in) / static_cast<double>(out);
    const auto k = static_cast<double>(in / out), n = static_cast<double>(out);
    const double most =
        std::min((k + 2.0) / alpha - 1.0, (static_cast<double>(in) + 1.0 - k) / alpha - (n - 1.0));
    const auto bits = own();
    const double u = tensorflow::random::Uint64ToDouble(bits[0], bits[1]) * most;
    int64_t before = 1;
    for (int64_t i = 1; i <= out; ++i) {
      const auto border = static_cast<int64_t>(std::ceil(alpha * (static_cast<double>(i) + u)));
      const int64_t next = i == out ? in + 1 : border;
      sizes[static_cast<size_t>(i - 1)] = next - before;
      before = next;
    }
  } else {
    generator->Skip((static_cast<uint64_t>(out) + 3) / 4);
    for (int64_t i = 0; i < in % out; ++i) ++sizes[static_cast<size_t>(i)];
    tensorflow::random::SingleSampleAdapter<PhiloxRandom> numbers(&own);
    for (size_t i = 0; i + 1 < sizes.size(); ++i) {
      std::swap(sizes[i], sizes[i + numbers() % static_cast<uint32_t>(sizes.size() - i)]);
    }
  }
  std::vector<int64_t> borders = {0};
  for (const int64_t size : sizes) borders.push_back(borders.back() + size);
  return borders;
}

struct Pair {
  int32_t first, last;
};

std::vector<Pair> Windows(const int64_t* borders, int64_t n, int64_t in, bool overlapping) {
  std::vector<Pair> windows;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t last = std::min(overlapping ? borders[i + 1] : borders[i + 1] - 1, in - 1);
    windows.push_back({static_cast<int32_t>(borders[i]), static_cast<int32_t>(last)});
  }
  return windows;
}

// The windows that each of `in` places is in: none where the last is before the first.
std::vector<Pair> WindowsOf(const std::vector<Pair>& windows, int64_t in) {
  std::vector<Pair> found(static_cast<size_t>(in), Pair{0, -1});
  for (size_t i = 0; i < windows.size(); ++i) {
    for (int32_t at = windows[i].first; at <= windows[i].last; ++at) {
      Pair& of = found[static_cast<size_t>(at)];
      if (of.last < of.first) of.first = static_cast<int32_t>(i);
      of.last = static_cast<int32_t>(i);
    }
  }
  return found;
}

Value Array(const std::vector<Pair>& pairs) {
  return HostArray(pairs.data(), static_cast<int64_t>(pairs.size()));
}

FractionalParams ToParams(const Shape& in, const Shape& out) {
  return {static_cast<uint32_t>(in[1]), static_cast<uint32_t>(in[2]), static_cast<uint32_t>(out[1]),
          static_cast<uint32_t>(out[2]), static_cast<uint32_t>(in[3])};
}

Status CheckGrids(const char* op, const Shape& shape) {
  RETURN_IF_ERROR(CheckGrid(op, "rows of all images", shape[0] * shape[1]));
  return CheckGrid(op, "numbers of an image", shape[1] * shape[2]);
}

class FractionalMaxPoolOp {
 public:
  static constexpr char kOp[] = "FractionalMaxPool";

  explicit FractionalMaxPoolOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, Init(ctx)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Init(KernelConstruction* ctx) {
    bool deterministic = false;
    RETURN_IF_ERROR(ctx->GetAttr("pooling_ratio", &ratio_));
    RETURN_IF_ERROR(ctx->GetAttr("pseudo_random", &pseudo_random_));
    RETURN_IF_ERROR(ctx->GetAttr("overlapping", &overlapping_));
    RETURN_IF_ERROR(ctx->GetAttr("deterministic", &deterministic));
    RETURN_IF_ERROR(ctx->GetAttr("seed", &seed_));
    RETURN_IF_ERROR(ctx->GetAttr("seed2", &seed2_));
    if (ratio_.size() != 4) {
      return InvalidArgument(kOp, ": pooling_ratio field must specify 4 dimensions");
    }
    for (const float ratio : ratio_) {
      if (ratio >= 1.0f) continue;
      return InvalidArgument(kOp, ": pooling_ratio cannot be smaller than 1, got: ", ratio);
    }
    if (ratio_[0] != 1.0f || ratio_[3] != 1.0f) {
      return Unimplemented(kOp, ": Fractional max pooling is not yet supported on the batch nor ",
                           "channel dimension.");
    }
    if (deterministic) {
      if (seed_ == 0 && seed2_ == 0) NewSeed(&seed_, &seed2_);
    } else if (seed_ != 0 || seed2_ != 0) {
      return InvalidArgument(kOp, ": Both seed and seed2 should be 0 if deterministic is false.");
    }
    return Status();
  }

  static void NewSeed(int64_t* seed, int64_t* seed2) {
    std::random_device device;
    *seed = static_cast<int64_t>(uint64_t{device()} << 32 | device());
    *seed2 = static_cast<int64_t>(uint64_t{device()} << 32 | device());
  }

  Status Run(KernelContext* ctx) const {
    Tensor in, out;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    if (in.rank() != 4) return InvalidArgument(kOp, ": tensor_in must be 4-dimensional");
    Shape shape;
    for (int i = 0; i < 4; ++i) {
      const auto ratio = ratio_[static_cast<size_t>(i)];
      if (static_cast<float>(in.dim(i)) < ratio) {
        return InvalidArgument(kOp, ": Pooling ratio is higher than input dimension size for ",
                               "dimension ", i, ". Input dim size: ", in.dim(i),
                               " pooling ratio: ", ratio);
      }
      shape.push_back(static_cast<int64_t>(std::floor(static_cast<float>(in.dim(i)) / ratio)));
    }
    int64_t seed = seed_, seed2 = seed2_;
    if (seed == 0 && seed2 == 0) NewSeed(&seed, &seed2);
    PhiloxRandom generator(static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2));
    std::vector<Pair> windows[2];
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    for (int i = 0; i < 2; ++i) {
      Tensor borders_out;
      const auto borders = Borders(in.dim(1 + i), shape[1 + i], pseudo_random_, &generator);
      RETURN_IF_ERROR(ctx->AllocateOutput(1 + i, {shape[1 + i] + 1}, &borders_out));
      std::copy(borders.begin(), borders.end(), borders_out.mutable_host<int64_t>());
      windows[i] = Windows(borders.data(), shape[1 + i], in.dim(1 + i), overlapping_);
    }
    RETURN_IF_ERROR(CheckGrids(kOp, in.shape()));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"fractional_max_pool", in.dtype()},
                            Grid(shape[3], shape[2], shape[0] * shape[1]),
                            {{"in", in},
                             {"rows", Array(windows[0])},
                             {"columns", Array(windows[1])},
                             {"out", out},
                             {"p", ToParams(in.shape(), shape)}});
    });
  }

  std::vector<float> ratio_;
  bool pseudo_random_ = false, overlapping_ = false;
  int64_t seed_ = 0, seed2_ = 0;
};
#define NUMBERS .Types("T", {TF_FLOAT, TF_INT64})
#define SEQUENCES .HostMemory("row_pooling_sequence").HostMemory("col_pooling_sequence")
REGISTER_METAL_KERNEL(FractionalMaxPoolOp, NUMBERS SEQUENCES);

class FractionalMaxPoolGradOp {
 public:
  static constexpr char kOp[] = "FractionalMaxPoolGrad";

  explicit FractionalMaxPoolGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("overlapping", &overlapping_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor in, pooled, d_out, places, d_in;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &pooled));
    RETURN_IF_ERROR(ctx->Input(2, &d_out));
    RETURN_IF_ERROR(CheckImages("orig_input", in));
    RETURN_IF_ERROR(CheckImages("orig_output", pooled));
    if (pooled.dim(0) != in.dim(0) || pooled.dim(3) != in.dim(3) ||
        d_out.shape() != pooled.shape()) {
      return InvalidArgument(kOp, ": orig_output and out_backprop must have one shape, with the ",
                             "batch and channels of orig_input ", ToString(in.shape()), ", got ",
                             ToString(pooled.shape()), " and ", ToString(d_out.shape()));
    }
    std::vector<Pair> windows[2], of[2];
    for (int i = 0; i < 2; ++i) {
      RETURN_IF_ERROR(GetWindows(ctx, i, in.dim(1 + i), pooled.dim(1 + i), &windows[i]));
      of[i] = WindowsOf(windows[i], in.dim(1 + i));
    }
    RETURN_IF_ERROR(CheckGrids(kOp, in.shape()));
    RETURN_IF_ERROR(CheckGrids(kOp, pooled.shape()));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &d_in));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_UINT32, pooled.shape(), &places));
    return Encode(ctx, [&](Encoder& encoder) {
      RETURN_IF_ERROR(
          encoder.Launch({"fractional_max_pool_places", in.dtype()},
                         Grid(pooled.dim(3), pooled.dim(2), pooled.dim(0) * pooled.dim(1)),
                         {{"in", in},
                          {"rows", Array(windows[0])},
                          {"columns", Array(windows[1])},
                          {"places", places},
                          {"p", ToParams(in.shape(), pooled.shape())}}));
      return encoder.Launch({"fractional_max_pool_grad", in.dtype()},
                            Grid(in.dim(3), in.dim(2), in.dim(0) * in.dim(1)),
                            {{"places", places},
                             {"d_out", d_out},
                             {"row_windows", Array(of[0])},
                             {"column_windows", Array(of[1])},
                             {"d_in", d_in},
                             {"p", ToParams(in.shape(), pooled.shape())}});
    });
  }

  static Status CheckImages(const char* name, const Tensor& tensor) {
    if (tensor.rank() != 4) {
      return InvalidArgument(kOp, ": ", name, " should be a tensor of rank 4, got shape ",
                             ToString(tensor.shape()));
    }
    if (tensor.num_elements() > 0) return Status();
    return InvalidArgument(kOp, ": ", name, " must not be empty, got shape ",
                           ToString(tensor.shape()));
  }

  Status GetWindows(KernelContext* ctx, int i, int64_t in, int64_t out,
                    std::vector<Pair>* windows) const {
    const char* const name = i == 0 ? "row_pooling_sequence" : "col_pooling_sequence";
    Tensor borders;
    RETURN_IF_ERROR(ctx->Input(3 + i, &borders));
    if (borders.rank() != 1) {
      return InvalidArgument(kOp, ": ", name, " must be a vector, received shape ",
                             ToString(borders.shape()));
    }
    const int64_t* const at = borders.host<int64_t>();
    bool rises = borders.dim(0) == out + 1 && at[0] >= 0 && at[out] <= in;
    for (int64_t k = 0; rises && k < out; ++k) rises = at[k] < at[k + 1];
    if (!rises) {
      return InvalidArgument(kOp, ": ", name, " must be ", out + 1, " numbers that rise from 0 to ",
                             in, ", where windows of the input begin");
    }
    *windows = Windows(at, out, in, overlapping_);
    return Status();
  }

  bool overlapping_ = false;
};
REGISTER_METAL_KERNEL(FractionalMaxPoolGradOp, NUMBERS SEQUENCES);

}  // namespace
}  // namespace metal_ops
