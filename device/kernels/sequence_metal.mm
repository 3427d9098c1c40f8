// ReverseSequence, MirrorPadGrad, Cross, CheckNumerics, UnravelIndex, Bitcast.

#include <algorithm>
#include <string>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/segment_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// ---- ReverseSequence ----------------------------------------------------------------------------

// A length that is more than the dimension reverses nothing.
class ReverseSequenceOp {
 public:
  static constexpr char kOp[] = "ReverseSequence";

  explicit ReverseSequenceOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("seq_dim", &sequence_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dim", &batch_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor in, lengths, out;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &lengths));
    const int64_t rank = in.rank();
    const int64_t batch = batch_ < 0 ? batch_ + rank : batch_;
    if (batch < 0 || batch >= rank || sequence_ < 0 || sequence_ >= rank || batch == sequence_) {
      return InvalidArgument(kOp, ": batch_dim ", batch_, " and seq_dim ", sequence_,
                             " must be different dimensions of input ", ToString(in.shape()));
    }
    if (lengths.shape() != Shape{in.dim(static_cast<int>(batch))}) {
      return InvalidArgument(kOp, ": Length of seq_lengths != input.dims(", batch, "), ",
                             ToString(lengths.shape()), " and ", in.dim(static_cast<int>(batch)));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    if (out.num_elements() == 0) return Status();
    const auto first = static_cast<size_t>(std::min(batch, sequence_));
    const auto second = static_cast<size_t>(std::max(batch, sequence_));
    ReverseParams p = {};
    p.swapped = sequence_ < batch ? 1 : 0;
    p.first = static_cast<uint64_t>(in.shape()[first]);
    p.second = static_cast<uint64_t>(in.shape()[second]);
    p.middle = static_cast<uint64_t>(NumElements(Dims(in.shape(), first + 1, second)));
    p.inner = static_cast<uint64_t>(NumElements(Dims(in.shape(), second + 1, in.shape().size())));
    p.total = static_cast<uint64_t>(in.num_elements());
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(
          {"reverse_sequence", std::to_string(in.element_bytes()), lengths.dtype()},
          Grid::Flat(in.num_elements()),
          {{"in", Value(in).Untyped()},
           {"lengths", lengths},
           {"out", Value(out).Untyped()},
           {"p", p}});
    });
  }

  int64_t sequence_ = 0, batch_ = 0;
};
#define REVERSE_SEQUENCE .Types("T", METAL_DEVICE_ALL_TYPES)
REGISTER_METAL_KERNEL(ReverseSequenceOp, REVERSE_SEQUENCE.Where("Tlen", TF_INT32));
REGISTER_METAL_KERNEL(ReverseSequenceOp, REVERSE_SEQUENCE.Where("Tlen", TF_INT64));

// ---- MirrorPadGrad ------------------------------------------------------------------------------

class MirrorPadGradOp {
 public:
  static constexpr char kOp[] = "MirrorPadGrad";

  explicit MirrorPadGradOp(KernelConstruction* ctx) {
    std::string mode;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("mode", &mode));
    edge_ = mode == "SYMMETRIC" ? 0 : 1;
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor in, paddings, out;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &paddings));
    const size_t rank = in.shape().size();
    if (paddings.shape() != Shape{in.rank(), 2}) {
      return InvalidArgument(kOp, ": paddings must have shape [", rank, ", 2], got ",
                             ToString(paddings.shape()));
    }
    std::vector<FoldParams> folds(rank);
    Shape shape = in.shape();
    std::vector<size_t> folded;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t before = At(paddings, 2 * d), after = At(paddings, 2 * d + 1);
      const int64_t size = shape[d] - before - after;
      if (before < 0 || after < 0 || before > size - edge_ || after > size - edge_) {
        return InvalidArgument(kOp, ": paddings must be >= 0 and no greater than the output ",
                               "dimension size", edge_ == 1 ? " less 1" : "", ": ", before, ", ",
                               after, " for size ", size);
      }
      shape[d] = size;
      folds[d].before = static_cast<uint64_t>(before);
      folds[d].after = static_cast<uint64_t>(after);
      if (before + after > 0) folded.push_back(d);
    }
    if (folded.empty()) return ctx->ShareInput(0, 0, in.shape());
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    // The last fold writes the output, the others memory of their own.
    std::vector<Tensor> between(folded.size() - 1);
    Shape part = in.shape();
    for (size_t i = 0; i < folded.size(); ++i) {
      const size_t d = folded[i];
      part[d] = shape[d];
      folds[d].size = static_cast<uint64_t>(shape[d]);
      folds[d].inner = static_cast<uint64_t>(NumElements(Dims(part, d + 1, rank)));
      folds[d].total = static_cast<uint64_t>(NumElements(part));
      folds[d].edge = static_cast<uint64_t>(edge_);
      if (i + 1 < folded.size()) RETURN_IF_ERROR(ctx->AllocateTemp(in.dtype(), part, &between[i]));
    }
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      for (size_t i = 0; i < folded.size(); ++i) {
        const Tensor& from = i == 0 ? in : between[i - 1];
        const Tensor& to = i + 1 == folded.size() ? out : between[i];
        FoldParams& p = folds[folded[i]];
        const auto size = static_cast<int64_t>(p.size), inner = static_cast<int64_t>(p.inner);
        const int64_t outer = static_cast<int64_t>(p.total) / size / inner;
        const auto before = static_cast<int64_t>(p.before),
                   edges = static_cast<int64_t>(p.after) + before;
        // Most rows mirror nothing: they are copied.
        p.edges_alone = edges + 2 * edge_ <= size / 2 ? 1 : 0;
        const int64_t rows = p.edges_alone != 0 ? edges : size;
        if (p.edges_alone != 0) {
          const Shape all = {outer, size, inner};
          const Walk there = {{(size + edges) * inner, inner, 1}, before * inner};
          RETURN_IF_ERROR(EncodeCopy(encoder, kOp, all, from, there, to, {DenseStrides(all)}));
        }
        RETURN_IF_ERROR(encoder.Launch(
            {"fold_edges", inner == 1 ? "long" : "", Unsigned(in.dtype())},
            inner == 1 ? Grid(rows, outer) : Grid(inner, rows, outer),
            {{"in", Value(from).Untyped()}, {"out", Value(to).Untyped()}, {"p", p}}));
      }
      return Status();
    });
  }

  static int64_t At(const Tensor& paddings, size_t i) {
    return paddings.dtype() == TF_INT64 ? paddings.host<int64_t>()[i] : paddings.host<int32_t>()[i];
  }

  int64_t edge_ = 0;  // elements at the edge that are not repeated
};
REGISTER_METAL_KERNEL(MirrorPadGradOp,
                      .Types("T", METAL_DEVICE_ALL_NUMBERS).HostMemory("paddings"));
REGISTER_METAL_KERNEL(MirrorPadGradOp, .Types("T", {TF_COMPLEX64}).HostMemory("paddings"));

// ---- small things -------------------------------------------------------------------------------

class CrossOp {
 public:
  static constexpr char kOp[] = "Cross";

  explicit CrossOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor a, b, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &a));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &b));
    OP_REQUIRES(ctx, a.shape() == b.shape(),
                InvalidArgument(kOp, ": Both inputs must be of same shape: ", ToString(a.shape()),
                                " vs. ", ToString(b.shape())));
    OP_REQUIRES(ctx, a.rank() >= 1 && a.dim(a.rank() - 1) == 3,
                InvalidArgument(kOp, ": Cross-products are only defined for 3-element vectors, ",
                                "got ", ToString(a.shape())));
    OP_REQUIRES_OK(ctx, CheckGrid(kOp, "vectors", a.num_elements() / 3));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, a.shape(), &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({"cross_product", Unsigned(a.dtype())},
                                           Grid(a.num_elements() / 3),
                                           {{"a", Value(a).Untyped()},
                                            {"b", Value(b).Untyped()},
                                            {"out", Value(out).Untyped()}});
                   }));
  }
};
REGISTER_METAL_KERNEL(CrossOp, .Types("T", METAL_DEVICE_ALL_NUMBERS));

// Waits, as it is an error that the caller gets.
template <typename Op>
class CheckNumericsOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit CheckNumericsOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("message", &message_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor in;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    const auto n = static_cast<uint64_t>(in.num_elements());
    const auto pieces = static_cast<int64_t>((n + CHECK_PIECE - 1) / CHECK_PIECE);
    RETURN_IF_ERROR(CheckGrid(kOp, "elements", pieces));
    uint32_t bits = 0;
    if (pieces > 0) {
      ReadBack found;
      RETURN_IF_ERROR(EncodeAndWait(ctx, [&](Encoder& encoder) -> Status {
        RETURN_IF_ERROR(encoder.Allocate(pieces * sizeof(uint32_t), &found));
        return encoder.Launch({"check_numerics", in.dtype()}, Grid(pieces),
                              {{"in", in}, {"found", found}, {"n", n}});
      }));
      for (int64_t i = 0; i < pieces; ++i) bits |= found.data<uint32_t>()[i];
    }
    if (bits != 0) return InvalidArgument(message_, " : Tensor had ", Describe(bits), " values");
    return ctx->ShareInput(0, 0, in.shape());
  }

  static std::string Describe(uint32_t bits) {
    std::vector<std::string> found;
    if (Op::kSigns) {
      if ((bits & 4) != 0) found.push_back("-Inf");
      if ((bits & 2) != 0) found.push_back("+Inf");
    } else if ((bits & 6) != 0) {
      found.push_back("Inf");
    }
    if ((bits & 1) != 0) found.push_back("NaN");
    std::string text = found[0];
    for (size_t i = 1; i < found.size(); ++i) {
      text += (found.size() > 2 ? ", " : " ") + std::string(i + 1 == found.size() ? "and " : "");
      text += found[i];
    }
    return text;
  }

  std::string message_;
};
struct CheckNumerics {
  static constexpr char kOp[] = "CheckNumerics";
  static constexpr bool kSigns = false;
};
struct CheckNumericsV2 {
  static constexpr char kOp[] = "CheckNumericsV2";
  static constexpr bool kSigns = true;
};
REGISTER_METAL_KERNEL(CheckNumericsOp<CheckNumerics>, .Types("T", METAL_DEVICE_FLOATS));
REGISTER_METAL_KERNEL(CheckNumericsOp<CheckNumericsV2>, .Types("T", METAL_DEVICE_FLOATS));

class UnravelIndexOp {
 public:
  static constexpr char kOp[] = "UnravelIndex";

  explicit UnravelIndexOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor indices, dims, out;
    Shape sizes;
    RETURN_IF_ERROR(ctx->Input(0, &indices));
    RETURN_IF_ERROR(ctx->Input(1, &dims));
    if (indices.rank() > 1 || dims.rank() != 1) {
      return InvalidArgument(kOp, ": The indices can only be scalar or vector and dims a vector, ",
                             "got ", ToString(indices.shape()), " and ", ToString(dims.shape()));
    }
    RETURN_IF_ERROR(Indices(kOp, "dims", dims, &sizes));
    UnravelParams p = {};
    if (sizes.size() > UNRAVEL_DIMS) {
      return InvalidArgument(kOp, ": dims may have ", UNRAVEL_DIMS, " numbers at most, got ",
                             sizes.size());
    }
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] <= 0) {
        return InvalidArgument(kOp, ": Input dims cannot contain a dim of zero or less, got ",
                               ToString(sizes));
      }
      p.dims[d] = sizes[d];
    }
    const int64_t all = NumElements(sizes);
    if (all < 0 || (dims.dtype() == TF_INT32 && all > INT32_MAX)) {
      return InvalidArgument(kOp,
                             ": Input dims product is causing integer overflow: ", ToString(sizes),
                             " of ", ToString(dims.dtype()));
    }
    p.n = static_cast<uint64_t>(indices.num_elements());
    p.rank = static_cast<uint32_t>(sizes.size());
    Shape shape = indices.shape();
    shape.insert(shape.begin(), dims.dim(0));
    RETURN_IF_ERROR(CheckGrid(kOp, "indices", indices.num_elements()));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"unravel_index", indices.dtype()}, Grid(indices.num_elements()),
                            {{"indices", indices}, {"out", out}, {"p", p}});
    });
  }
};
REGISTER_METAL_KERNEL(UnravelIndexOp, .Types("Tidx", {TF_INT32, TF_INT64}).HostMemory("dims"));

class BitcastOp {
 public:
  static constexpr char kOp[] = "Bitcast";

  explicit BitcastOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor in;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    const auto from = static_cast<int64_t>(in.element_bytes());
    const auto to =
        static_cast<int64_t>(TF_DataTypeSize(static_cast<TF_DataType>(ctx->output_dtype(0))));
    Shape shape = in.shape();
    if (from > to) shape.push_back(from / to);
    if (from < to) {
      if (shape.empty() || shape.back() != to / from) {
        return InvalidArgument(kOp, ": Cannot bitcast from ", static_cast<int>(in.dtype()), " to ",
                               static_cast<int>(ctx->output_dtype(0)), ": ", ToString(in.dtype()),
                               " to ", ToString(ctx->output_dtype(0)),
                               ", the last dimension of input ", ToString(shape), " must be ",
                               to / from);
      }
      shape.pop_back();
    }
    return ctx->ShareInput(0, 0, shape);
  }
};
REGISTER_METAL_KERNEL(BitcastOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_DOUBLE, TF_COMPLEX64,
                                   TF_COMPLEX128, TF_INT8, TF_INT16, TF_INT32, TF_INT64, TF_UINT8,
                                   TF_UINT16, TF_UINT32, TF_UINT64}));

}  // namespace
}  // namespace metal_ops
