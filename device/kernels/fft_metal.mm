// FFT, IFFT, RFFT and IRFFT of one to three dimensions.

#include <algorithm>
#include <utility>
#include <vector>

#include "device/kernels/fft_params.h"
#include "device/kernels/layout.h"
#include "kernels/runtime/elementwise.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// The radices whose product is `length`; empty if it has other factors.
std::vector<uint32_t> Radices(int64_t length) {
  std::vector<uint32_t> radices;
  for (const uint32_t radix : {4, 2, 3, 5, 7}) {
    for (; length % radix == 0; length /= radix) radices.push_back(radix);
  }
  if (length != 1) radices.clear();
  return radices;
}

// Elements with the same factors from which on they make a row of their own: two vectors of a CPU's.
constexpr uint32_t kRows = 16;
// Threads that have blocks of series: enough for the cores of a processor.
constexpr int64_t kBlockThreads = 16;

// The last `dims` dimensions of `shape` after ones, and the product of those before them.
struct Sizes {
  int64_t batch = 1;
  int64_t size[3] = {1, 1, 1};

  Sizes(const Shape& shape, int dims) {
    const size_t before = shape.size() - static_cast<size_t>(dims);
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d < before) {
        batch *= shape[d];
      } else {
        size[3 - (shape.size() - d)] = shape[d];
      }
    }
  }
  bool operator==(const Sizes& other) const {
    return batch == other.batch && std::equal(size, size + 3, other.size);
  }
  int64_t elements() const { return batch * size[0] * size[1] * size[2]; }
};

// One call: which device memory there is, and which way it goes.
struct Fft {
  Fft(KernelContext* ctx, const char* op, bool inverse)
      : ctx(ctx), op(op), sign(inverse ? 1.0f : -1.0f), inverse(inverse) {}

  Status Complex(int64_t elements, Tensor* tensor) {
    return ctx->AllocateTemp(TF_COMPLEX64, {elements}, tensor);
  }

  // The first n roots of one of `length`.
  Status Roots(Encoder& encoder, int64_t length, int64_t n, float direction, const Tensor& roots) {
    const auto of = static_cast<uint32_t>(length);
    return encoder.Launch("fft_roots", Grid(n), {{"roots", roots}, {"n", of}, {"sign", direction}});
  }

  // Whether a thread makes all passes of several series: where threads run after each other, each in a cache.
  static bool InBlocks(const std::vector<uint32_t>& radices, int64_t outer, int64_t length,
                       int64_t inner) {
    return !ThreadgroupsRunAtOnce() && (inner == 1 ? outer : inner) >= FFT_LANES / 2 &&
           length <= FFT_BLOCK_LENGTH && radices.size() <= FFT_BLOCK_PASSES;
  }

  // With `real_roots`, of a number more than `length`, one side is half a transform of reals: see FftBlocks.
  Status Blocks(const std::vector<uint32_t>& radices, int64_t outer, int64_t length, int64_t inner,
                float direction, float scale, const Tensor& roots, const Tensor& from,
                const Tensor& to, const Tensor* real_roots = nullptr) {
    FftBlocks p = {};
    const bool rows = inner == 1;
    const int64_t lanes = rows ? outer : inner, across = (lanes + FFT_LANES - 1) / FFT_LANES;
    const int64_t blocks = rows ? across : outer * across;
    p.blocks = static_cast<uint64_t>(blocks);
    p.across = static_cast<uint64_t>(across);
    p.lanes = static_cast<uint64_t>(lanes);
    p.outer_step = rows ? 0 : static_cast<uint64_t>(length * inner);
    p.lane_step = rows ? static_cast<uint64_t>(length) : 1;
    p.step = static_cast<uint64_t>(inner);
    p.length = static_cast<uint32_t>(length);
    p.passes = static_cast<uint32_t>(radices.size());
    std::copy(radices.begin(), radices.end(), p.radices);
    p.scale = scale;
    const bool reals = real_roots != nullptr;
    p.half_in = reals && inverse ? 1 : 0;
    p.half_out = reals && !inverse ? 1 : 0;
    const int64_t threads = std::min(blocks, kBlockThreads), points = length + (reals ? 1 : 0);
    Tensor works;
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {threads, 4 * points * FFT_LANES}, &works));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (reals) {
        RETURN_IF_ERROR(Roots(encoder, 2 * length, points, direction, *real_roots));
      }
      RETURN_IF_ERROR(Roots(encoder, length, length, direction, roots));
      // A group each: of a group's threads one core runs all.
      return encoder.Launch("fft_blocks", Grid(threads).InGroupsOf(1, 1, 1),
                            {{"in", Value(from).Untyped()},
                             {"out", Value(to).Untyped()},
                             {"roots", roots},
                             {"works", works},
                             {"sign", direction},
                             {"p", p},
                             {"real_roots", reals ? Value(*real_roots) : Nothing()}});
    });
  }

  // Whether blocks have room for the factors that turn pairs of reals into half of the reals'
  // transform, or back.
  static bool PairsInBlocks(const Sizes& pairs) {
    const std::vector<uint32_t> radices = Radices(pairs.size[2]);
    return !radices.empty() &&
           InBlocks(radices, pairs.elements() / pairs.size[2], pairs.size[2], 1);
  }

  // All of it at once, along the last dimension.
  Status PairBlocks(const Sizes& pairs, const Tensor& real_roots, const Tensor& from,
                    const Tensor& to) {
    const int64_t length = pairs.size[2];
    Tensor roots;
    RETURN_IF_ERROR(Complex(length, &roots));
    return Blocks(Radices(length), pairs.elements() / length, length, 1, sign,
                  inverse ? 1.0f / static_cast<float>(length) : 1.0f, roots, from, to, &real_roots);
  }

  // Transforms `from` [outer, length, inner] along `length`, of factors that there are passes for. The
  // result is in `to`, or in `series` where there is none, which may be `from`; `other` is of the same size.
  Status Passes(const std::vector<uint32_t>& radices, int64_t outer, int64_t length, int64_t inner,
                float direction, float scale, const Tensor* from, const Tensor* to, Tensor* series,
                Tensor* other) {
    Tensor roots;
    RETURN_IF_ERROR(Complex(length, &roots));
    if (InBlocks(radices, outer, length, inner)) {
      const Tensor* const result = to != nullptr ? to : other;
      RETURN_IF_ERROR(
          Blocks(radices, outer, length, inner, direction, scale, roots, *from, *result));
      std::swap(*series, *other);
      return Status();
    }
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(Roots(encoder, length, length, direction, roots));
      uint32_t done = 1;
      for (size_t i = 0; i < radices.size(); ++i) {
        FftStage p = {};
        p.points = static_cast<uint32_t>(length * inner / radices[i]);
        p.together = static_cast<uint32_t>(done * inner);
        p.roots_step = done;
        p.roots_part = static_cast<uint32_t>(length / radices[i]);
        const bool last = i + 1 == radices.size();
        p.scale = last ? scale : 1.0f;
        const Tensor* const result = last && to != nullptr ? to : other;
        const bool rows = p.together >= kRows;
        const Grid grid =
            rows ? Grid(p.together, p.points / p.together, outer) : Grid(p.points, outer);
        RETURN_IF_ERROR(encoder.Launch({rows ? "fft_rows" : "fft_stage", radices[i]}, grid,
                                       {{"in", Value(*from).Untyped()},
                                        {"out", Value(*result).Untyped()},
                                        {"roots", roots},
                                        {"sign", direction},
                                        {"p", p}}));
        std::swap(*series, *other);
        from = series;
        done *= radices[i];
      }
      return Status();
    }));
    return Status();
  }

  // The same for any length.
  Status Transform(int64_t outer, int64_t length, int64_t inner, const Tensor* from,
                   const Tensor* to, Tensor* series, Tensor* other) {
    const float scale = inverse ? 1.0f / static_cast<float>(length) : 1.0f;
    const std::vector<uint32_t> radices = Radices(length);
    if (!radices.empty()) {
      return Passes(radices, outer, length, inner, sign, scale, from, to, series, other);
    }
    int64_t padded = 1;
    while (padded < 2 * length - 1) padded *= 2;
    for (const int64_t size : {padded * inner, outer * padded}) {
      RETURN_IF_ERROR(CheckGrid(op, "elements with room for a convolution", size));
    }
    Tensor a, b, factors, spare;
    RETURN_IF_ERROR(Complex(outer * padded * inner, &a));
    RETURN_IF_ERROR(Complex(outer * padded * inner, &b));
    RETURN_IF_ERROR(Complex(padded, &factors));
    RETURN_IF_ERROR(Complex(padded, &spare));
    ChirpParams p = {};
    p.length = static_cast<uint32_t>(length);
    p.padded = static_cast<uint32_t>(padded);
    p.inner = static_cast<uint32_t>(inner);
    p.scale = scale;
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(
          encoder.Launch("fft_chirp", Grid(padded), {{"out", factors}, {"sign", sign}, {"p", p}}));
      return encoder.Launch("fft_chirp_in", Grid(inner, padded, outer),
                            {{"in", Value(*from).Untyped()}, {"out", a}, {"sign", sign}, {"p", p}});
    }));
    const std::vector<uint32_t> of_padded = Radices(padded);
    RETURN_IF_ERROR(
        Passes(of_padded, 1, padded, 1, -1.0f, 1.0f, &factors, nullptr, &factors, &spare));
    RETURN_IF_ERROR(Passes(of_padded, outer, padded, inner, -1.0f, 1.0f, &a, nullptr, &a, &b));
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("fft_chirp_times", Grid(inner, padded, outer),
                            {{"series", a}, {"factors", factors}, {"p", p}});
    }));
    RETURN_IF_ERROR(Passes(of_padded, outer, padded, inner, 1.0f, 1.0f / static_cast<float>(padded),
                           &a, nullptr, &a, &b));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("fft_chirp_out", Grid(inner, length, outer),
                            {{"in", a},
                             {"out", Value(to != nullptr ? *to : *series).Untyped()},
                             {"sign", sign},
                             {"p", p}});
    });
  }

  KernelContext* ctx;
  const char* op;
  float sign;
  bool inverse;
};

// Rows of an even number of reals, as as many pairs: complex numbers.
bool HasPairs(const Sizes& s) { return s.size[2] % 2 == 0 && s.size[2] > 2; }
Sizes Pairs(Sizes s) {
  s.size[2] /= 2;
  return s;
}
// The neighbours that a thread makes of transformed pairs: side by side where threads run after each other.
uint32_t RunOfReals() { return ThreadgroupsRunAtOnce() ? 1 : 64; }
Grid RunGrid(const Sizes& made) {
  const int64_t run = RunOfReals();
  return Grid((made.size[2] + run - 1) / run, made.elements() / made.size[2]);
}

Status CheckSizes(const char* op, const Sizes& s) {
  return CheckGrid(op, "elements", s.elements());
}

// All of the dimensions from `first` (of three) to `last`, of [batch, size...]: see Passes. A dimension of one
// element is its transform.
Status TransformDims(Fft& fft, const Sizes& s, int first, int last, const Tensor* from,
                     const Tensor* to, Tensor* series, Tensor* other) {
  while (first < last && s.size[first] == 1) ++first;
  for (int d = last; d >= first; --d) {
    int64_t outer = s.batch, inner = 1;
    for (int i = 0; i < d; ++i) outer *= s.size[i];
    for (int i = d + 1; i < 3; ++i) inner *= s.size[i];
    if (s.size[d] > 1) {
      RETURN_IF_ERROR(
          fft.Transform(outer, s.size[d], inner, from, d == first ? to : nullptr, series, other));
      from = series;
    }
  }
  if (s.size[first] > 1) return Status();
  const Tensor& result = to != nullptr ? *to : *series;
  if (from == &result) return Status();
  return Encode(fft.ctx, [&](Encoder& encoder) { return encoder.Copy(*from, result); });
}

Status EncodeFftCopy(KernelContext* ctx, const char* shader, const Tensor& in, const Sizes& from,
                     const Tensor& out, const Sizes& to) {
  FftCopy p;
  for (int d = 0; d < 3; ++d) {
    p.in[d] = static_cast<uint32_t>(from.size[d]);
    p.out[d] = static_cast<uint32_t>(to.size[d]);
  }
  return Encode(ctx, [&](Encoder& encoder) {
    return encoder.Launch(shader, Grid(to.size[2], to.size[1], to.batch * to.size[0]),
                          {{"in", in}, {"out", out}, {"p", p}});
  });
}

Status CheckRank(const char* op, const Tensor& in, int dims) {
  if (in.rank() >= dims) return Status();
  return InvalidArgument(op, ": Input must have rank of at least ", dims,
                         " but got: ", ToString(in.shape()));
}

// An op's number of dimensions, and its direction.
template <typename Op>
class FftOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit FftOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor in, out, a, b;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(CheckRank(kOp, in, Op::kDims));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    if (out.num_elements() == 0) return Status();
    const Sizes s(in.shape(), Op::kDims);
    RETURN_IF_ERROR(CheckSizes(kOp, s));
    Fft fft(ctx, kOp, Op::kInverse);
    RETURN_IF_ERROR(fft.Complex(s.elements(), &a));
    RETURN_IF_ERROR(fft.Complex(s.elements(), &b));
    return TransformDims(fft, s, 3 - Op::kDims, 2, &in, &out, &a, &b);
  }
};
#define FFT_OP(name, dims, inverse)           \
  struct name {                               \
    static constexpr char kOp[] = #name;      \
    static constexpr int kDims = dims;        \
    static constexpr bool kInverse = inverse; \
  };                                          \
  REGISTER_METAL_KERNEL(FftOp<name>, .Types("Tcomplex", {TF_COMPLEX64}))
FFT_OP(FFT, 1, false);
FFT_OP(FFT2D, 2, false);
FFT_OP(FFT3D, 3, false);
FFT_OP(IFFT, 1, true);
FFT_OP(IFFT2D, 2, true);
FFT_OP(IFFT3D, 3, true);

// For real numbers: half of the last dimension of the complex side is kept.
template <typename Op>
class RealFftOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit RealFftOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor in, length, out;
    Shape lengths;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &length));
    RETURN_IF_ERROR(CheckRank(kOp, in, Op::kDims));
    if (length.shape() != Shape{Op::kDims}) {
      return InvalidArgument(kOp, ": fft_length must have shape [", Op::kDims, "], got ",
                             ToString(length.shape()));
    }
    RETURN_IF_ERROR(Indices(kOp, "fft_length", length, &lengths));
    Shape whole = in.shape(), half = in.shape();
    for (int d = 0; d < Op::kDims; ++d) {
      const size_t at = whole.size() - Op::kDims + d;
      const bool last = d + 1 == Op::kDims;
      if (lengths[d] < 0) {
        return InvalidArgument(kOp, ": fft_length[", d, "] must be >= 0, but got: ", lengths[d]);
      }
      whole[at] = lengths[d];
      half[at] = last && lengths[d] > 0 ? lengths[d] / 2 + 1 : lengths[d];
      const int64_t least = Op::kInverse ? half[at] : whole[at];
      if (in.dim(static_cast<int>(at)) < least && in.num_elements() > 0) {
        return InvalidArgument(kOp, ": Input dimension ", at, " must have length of at least ",
                               least, " but got: ", in.dim(static_cast<int>(at)));
      }
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, Op::kInverse ? whole : half, &out));
    if (out.num_elements() == 0) return Status();
    if (in.num_elements() == 0) return ZeroOutput(ctx, kOp, out);
    const Sizes given(in.shape(), Op::kDims), all(whole, Op::kDims), kept(half, Op::kDims);
    RETURN_IF_ERROR(CheckSizes(kOp, given));
    RETURN_IF_ERROR(CheckSizes(kOp, all));
    return Op::kInverse ? Backward(ctx, in, given, all, kept, out)
                        : Forward(ctx, in, given, all, kept, out);
  }

  static constexpr int kFirst = 3 - Op::kDims;

  static Status Forward(KernelContext* ctx, const Tensor& in, const Sizes& given, const Sizes& all,
                        const Sizes& kept, const Tensor& out) {
    Tensor a, b, c, d;
    Fft fft(ctx, kOp, false);
    if (Op::kDims > 1) {
      RETURN_IF_ERROR(fft.Complex(kept.elements(), &c));
      RETURN_IF_ERROR(fft.Complex(kept.elements(), &d));
    }
    const Tensor& halves = Op::kDims > 1 ? c : out;
    if (given == all && HasPairs(all)) {
      const Sizes pairs = Pairs(all);
      const int64_t length = pairs.size[2], outer = pairs.elements() / length;
      const std::vector<uint32_t> radices = Radices(length);
      Tensor roots;
      RETURN_IF_ERROR(fft.Complex(kept.size[2], &roots));
      if (!radices.empty() && Fft::InBlocks(radices, outer, length, 1)) {
        Tensor of_pairs;
        RETURN_IF_ERROR(fft.Complex(length, &of_pairs));
        RETURN_IF_ERROR(
            fft.Blocks(radices, outer, length, 1, fft.sign, 1.0f, of_pairs, in, halves, &roots));
        return Op::kDims == 1 ? Status() : TransformDims(fft, kept, kFirst, 1, &c, &out, &c, &d);
      }
      RETURN_IF_ERROR(fft.Complex(pairs.elements(), &a));
      RETURN_IF_ERROR(fft.Complex(pairs.elements(), &b));
      RETURN_IF_ERROR(TransformDims(fft, pairs, 2, 2, &in, nullptr, &a, &b));
      RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
        RETURN_IF_ERROR(fft.Roots(encoder, all.size[2], kept.size[2], fft.sign, roots));
        return encoder.Launch("fft_real_out", RunGrid(kept),
                              {{"in", a},
                               {"out", halves},
                               {"roots", roots},
                               {"half_length", static_cast<uint32_t>(pairs.size[2])},
                               {"run", RunOfReals()}});
      }));
    } else {
      RETURN_IF_ERROR(Whole(fft, in, given, all, kept, halves));
    }
    if (Op::kDims == 1) return Status();
    return TransformDims(fft, kept, kFirst, 1, &c, &out, &c, &d);
  }

  // The transform of all complex numbers, of which half is kept.
  static Status Whole(Fft& fft, const Tensor& in, const Sizes& given, const Sizes& all,
                      const Sizes& kept, const Tensor& out) {
    Tensor a, b;
    RETURN_IF_ERROR(fft.Complex(all.elements(), &a));
    RETURN_IF_ERROR(fft.Complex(all.elements(), &b));
    RETURN_IF_ERROR(EncodeFftCopy(fft.ctx, "fft_copy_float", in, given, a, all));
    RETURN_IF_ERROR(TransformDims(fft, all, 2, 2, &a, nullptr, &a, &b));
    return EncodeFftCopy(fft.ctx, "fft_copy_complex", a, all, out, kept);
  }

  static Status Backward(KernelContext* ctx, const Tensor& in, const Sizes& given, const Sizes& all,
                         const Sizes& kept, const Tensor& out) {
    Tensor a, b, c, d;
    Fft fft(ctx, kOp, true);
    RETURN_IF_ERROR(fft.Complex(kept.elements(), &a));
    RETURN_IF_ERROR(fft.Complex(kept.elements(), &b));
    const Tensor* from = &in;
    if (!(given == kept)) {
      RETURN_IF_ERROR(EncodeFftCopy(ctx, "fft_copy_complex", in, given, a, kept));
      from = &a;
    }
    if (Op::kDims > 1) {
      RETURN_IF_ERROR(TransformDims(fft, kept, kFirst, 1, from, nullptr, &a, &b));
      from = &a;
    }
    if (HasPairs(all)) {
      const Sizes pairs = Pairs(all);
      Tensor roots;
      RETURN_IF_ERROR(fft.Complex(kept.size[2], &roots));
      if (fft.PairsInBlocks(pairs)) return fft.PairBlocks(pairs, roots, *from, out);
      RETURN_IF_ERROR(fft.Complex(pairs.elements(), &c));
      RETURN_IF_ERROR(fft.Complex(pairs.elements(), &d));
      RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
        RETURN_IF_ERROR(fft.Roots(encoder, all.size[2], pairs.size[2], fft.sign, roots));
        return encoder.Launch("fft_real_in", RunGrid(pairs),
                              {{"half_series", *from},
                               {"out", c},
                               {"roots", roots},
                               {"half_length", static_cast<uint32_t>(pairs.size[2])},
                               {"run", RunOfReals()}});
      }));
      return TransformDims(fft, pairs, 2, 2, &c, &out, &c, &d);
    }
    RETURN_IF_ERROR(fft.Complex(all.elements(), &c));
    RETURN_IF_ERROR(fft.Complex(all.elements(), &d));
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("fft_hermitian", Grid(all.size[2], all.elements() / all.size[2]),
                            {{"half_series", *from}, {"out", c}});
    }));
    RETURN_IF_ERROR(TransformDims(fft, all, 2, 2, &c, nullptr, &c, &d));
    return Encode(ctx, [&](Encoder& encoder) {
      return LaunchElementwise(encoder, "real_float2", all.elements(), {{"a", c}, {"out", out}});
    });
  }
};
#define REAL_FFT_OP(name, dims, inverse)      \
  struct name {                               \
    static constexpr char kOp[] = #name;      \
    static constexpr int kDims = dims;        \
    static constexpr bool kInverse = inverse; \
  };                                          \
  REGISTER_METAL_KERNEL(                      \
      RealFftOp<name>,                        \
      .Types("Treal", {TF_FLOAT}).Where("Tcomplex", TF_COMPLEX64).HostMemory("fft_length"))
REAL_FFT_OP(RFFT, 1, false);
REAL_FFT_OP(RFFT2D, 2, false);
REAL_FFT_OP(RFFT3D, 3, false);
REAL_FFT_OP(IRFFT, 1, true);
REAL_FFT_OP(IRFFT2D, 2, true);
REAL_FFT_OP(IRFFT3D, 3, true);

}  // namespace
}  // namespace metal_ops
