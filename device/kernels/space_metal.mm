// Blocks of space and depth or batch: SpaceToDepth, DepthToSpace, SpaceToBatch, BatchToSpace.

#include <array>
#include <string>
#include <vector>

#include "device/kernels/copy_params.h"
#include "device/kernels/layout.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// ---- space and depth ----------------------------------------------------------------------------

template <typename Op>
class DepthOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit DepthOp(KernelConstruction* ctx) {
    std::string data_format;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("data_format", &data_format));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("block_size", &block_));
    OP_REQUIRES(ctx, data_format == "NHWC" || data_format == "NCHW",
                Unimplemented(kOp, ": data_format ", data_format,
                              " is not provided on the METAL device, use NHWC or NCHW"));
    nchw_ = data_format == "NCHW";
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Go(ctx)); }

 private:
  Status Go(KernelContext* ctx) const {
    Tensor in, out;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    const int h = nchw_ ? 2 : 1, w = nchw_ ? 3 : 2, c = nchw_ ? 1 : 3;
    const int64_t b = block_;
    const bool fits = in.rank() == 4 && (Op::kToDepth ? in.dim(h) % b == 0 && in.dim(w) % b == 0
                                                      : in.dim(c) % (b * b) == 0);
    if (!fits) {
      return InvalidArgument(kOp, ": input must have 4 dimensions, with ",
                             Op::kToDepth ? "height and width divisible by the block size "
                                          : "channels divisible by the square of the block size ",
                             b, "; got ", ToString(in.shape()));
    }
    // [n, height, block, width, block, channels] on the side of space, and on that of depth.
    Shape small = in.shape(), large = in.shape();
    Shape& shape = Op::kToDepth ? small : large;
    shape[h] = Op::kToDepth ? shape[h] / b : shape[h] * b;
    shape[w] = Op::kToDepth ? shape[w] / b : shape[w] * b;
    shape[c] = Op::kToDepth ? shape[c] * b * b : shape[c] / (b * b);
    const std::vector<int64_t> s = DenseStrides(small), l = DenseStrides(large);
    const int64_t channels = large[c];
    const Shape loop = {small[0], small[h], b, small[w], b, channels};
    const Walk space = {{l[0], b * l[h], l[h], b * l[w], l[w], l[c]}};
    const Walk depth = {{s[0], s[h], b * channels * s[c], s[w], channels * s[c], s[c]}};
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    return Encode(ctx, [&](Encoder& encoder) {
      return EncodeCopy(encoder, kOp, loop, in, Op::kToDepth ? space : depth, out,
                        Op::kToDepth ? depth : space);
    });
  }

  int64_t block_ = 2;
  bool nchw_ = false;
};
struct SpaceToDepth {
  static constexpr char kOp[] = "SpaceToDepth";
  static constexpr bool kToDepth = true;
};
struct DepthToSpace {
  static constexpr char kOp[] = "DepthToSpace";
  static constexpr bool kToDepth = false;
};
REGISTER_METAL_KERNEL(DepthOp<SpaceToDepth>, .Types("T", METAL_DEVICE_ALL_TYPES));
REGISTER_METAL_KERNEL(DepthOp<DepthToSpace>, .Types("T", METAL_DEVICE_ALL_TYPES));

// ---- space and batch ----------------------------------------------------------------------------

// Image n of the many has the points whose place in their block, (y, x, ...), is that of
// n / images, row-major.
template <typename Op>
class BatchOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit BatchOp(KernelConstruction* ctx) {
    if (!Op::kNd) OP_REQUIRES_OK(ctx, ctx->GetAttr("block_size", &block_size_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Go(ctx)); }

 private:
  Status Go(KernelContext* ctx) const {
    constexpr const char* kCut = Op::kToBatch ? "paddings" : "crops";
    Tensor in, block_tensor, cut, out;
    Shape block = {block_size_, block_size_}, before, after;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(Op::kNd ? 2 : 1, &cut));
    if (Op::kNd) {
      RETURN_IF_ERROR(ctx->Input(1, &block_tensor));
      RETURN_IF_ERROR(Indices(kOp, "block_shape", block_tensor, &block));
    }
    const size_t dims = block.size();
    if (in.shape().size() < dims + 1) {
      return InvalidArgument(kOp, ": input must have at least ", dims + 1, " dimensions, got ",
                             ToString(in.shape()));
    }
    RETURN_IF_ERROR(Pairs(kOp, kCut, cut, static_cast<int64_t>(dims), &before, &after));
    int64_t blocks = 1;
    for (const int64_t size : block) {
      blocks = size < 1 || size > INT32_MAX ? 0 : blocks * size;
      if (blocks < 1 || blocks > INT32_MAX || in.dim(0) > INT32_MAX) {
        return InvalidArgument(kOp,
                               ": block_shape must be positive, with at most 2^31 - 1 points, ",
                               "got ", ToString(block), " for input ", ToString(in.shape()));
      }
    }
    // `space` has the images whole, `batch` a part of each point of a block.
    Shape shape = in.shape();
    if (!Op::kToBatch && shape[0] % blocks != 0) {
      return InvalidArgument(kOp, ": Input batch dimension (", shape[0],
                             ") is not divisible by product of block sizes (", blocks, ")");
    }
    shape[0] = Op::kToBatch ? shape[0] * blocks : shape[0] / blocks;
    bool padded = false;
    for (size_t d = 0; d < dims; ++d) {
      const int64_t size = in.shape()[d + 1], cuts = before[d] + after[d];
      padded = padded || cuts != 0;
      if (Op::kToBatch ? (size + cuts) % block[d] != 0 : size * block[d] < cuts) {
        return InvalidArgument(kOp, ": dimension ", d + 1, " of input ", ToString(in.shape()),
                               " does not fit block ", block[d], " and ", kCut, " ", before[d],
                               ", ", after[d]);
      }
      shape[d + 1] = Op::kToBatch ? (size + cuts) / block[d] : size * block[d] - cuts;
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    const Shape& space = Op::kToBatch ? in.shape() : shape;
    const Shape& batch = Op::kToBatch ? shape : in.shape();
    if (out.num_elements() == 0) return Status();
    if (dims <= 2 && in.num_elements() > 0)
      return AtOnce(ctx, in, space, batch, block, before, out);
    const std::vector<int64_t> space_strides = DenseStrides(space);
    const std::vector<int64_t> batch_strides = DenseStrides(batch);
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (Op::kToBatch && padded) {
        RETURN_IF_ERROR(EncodeZeros(encoder, kOp, out));
      }
      for (int64_t i = 0; i < blocks; ++i) {
        Shape loop = space;
        Walk there = {space_strides}, here = {batch_strides};
        here.offset = i * space[0] * batch_strides[0];
        int64_t rest = i;
        for (size_t d = dims; d-- > 0;) {
          const int64_t place = rest % block[d] - before[d];  // of the first point, uncut
          rest /= block[d];
          const int64_t skip = place < 0 ? (-place + block[d] - 1) / block[d] : 0;
          const int64_t first = place + skip * block[d];
          loop[d + 1] = first >= space[d + 1] ? 0 : (space[d + 1] - first - 1) / block[d] + 1;
          there.offset += first * space_strides[d + 1];
          there.strides[d + 1] *= block[d];
          here.offset += skip * batch_strides[d + 1];
        }
        RETURN_IF_ERROR(Op::kToBatch ? EncodeCopy(encoder, kOp, loop, in, there, out, here)
                                     : EncodeCopy(encoder, kOp, loop, in, here, out, there));
      }
      return Status();
    });
  }

  // Blocks of one or two dimensions in one launch.
  static Status AtOnce(KernelContext* ctx, const Tensor& in, const Shape& space, const Shape& batch,
                       const Shape& block, const Shape& before, const Tensor& out) {
    const size_t dims = block.size();
    // With one dimension the other is a row.
    const auto pair = [dims](const Shape& of, size_t first, int64_t row) {
      return dims == 2 ? std::array{of[first], of[first + 1]} : std::array{row, of[first]};
    };
    const auto whole = pair(space, 1, 1), parts = pair(batch, 1, 1), blocks = pair(block, 0, 1);
    const auto cut = pair(before, 0, 0);
    const auto narrow = [](int64_t value) { return static_cast<uint32_t>(value); };
    BlockParams p = {};
    const int64_t inner = NumElements(Dims(in.shape(), dims + 1, in.shape().size()));
    const auto& made = Op::kToBatch ? parts : whole;
    const int64_t images = Op::kToBatch ? batch[0] : space[0];
    RETURN_IF_ERROR(CheckGrid(kOp, "rows of all images in parts", batch[0] * parts[0]));
    RETURN_IF_ERROR(CheckGrid(kOp, "rows of all images", space[0] * whole[0]));
    for (int d = 0; d < 2; ++d) {
      RETURN_IF_ERROR(CheckGrid(kOp, "padded points", whole[d] + cut[d] + blocks[d]));
      RETURN_IF_ERROR(CheckGrid(kOp, "points of parts", parts[d] * blocks[d]));
      p.block[d] = narrow(blocks[d]);
      p.before[d] = narrow(cut[d]);
    }
    p.images = narrow(space[0]);
    p.rows = narrow(whole[0]);
    p.columns = narrow(whole[1]);
    p.part_rows = narrow(parts[0]);
    p.part_columns = narrow(parts[1]);
    p.inner = static_cast<uint64_t>(inner);
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(
          {Op::kToBatch ? "space_to_batch" : "batch_to_space", in.element_bytes()},
          Grid(inner, made[1], images * made[0]),
          {{"in", Value(in).Untyped()}, {"out", Value(out).Untyped()}, {"p", p}});
    });
  }

  int64_t block_size_ = 2;
};
#define BATCH_OP(op, to_batch, nd)             \
  struct op {                                  \
    static constexpr char kOp[] = #op;         \
    static constexpr bool kToBatch = to_batch; \
    static constexpr bool kNd = nd;            \
  };                                           \
  REGISTER_METAL_KERNEL(BatchOp<op>, .Types("T", METAL_DEVICE_ALL_TYPES)
BATCH_OP(SpaceToBatchND, true, true).HostMemory("block_shape").HostMemory("paddings"));
BATCH_OP(BatchToSpaceND, false, true).HostMemory("block_shape").HostMemory("crops"));
BATCH_OP(SpaceToBatch, true, false).HostMemory("paddings"));
BATCH_OP(BatchToSpace, false, false).HostMemory("crops"));

}  // namespace
}  // namespace metal_ops
