// Sum and Mean over any axes.

#include <algorithm>
#include <vector>

#include "device/kernels/strided.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

struct Dim {
  int64_t size;
  int64_t stride;
};

// Neighbours that are contiguous become one. `dims` is outermost first, the result innermost first.
std::vector<Dim> Merge(const std::vector<Dim>& dims) {
  std::vector<Dim> merged;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i].size == 1) continue;
    if (!merged.empty() && dims[i].stride == merged.back().stride * merged.back().size) {
      merged.back().size *= dims[i].size;
    } else {
      merged.push_back(dims[i]);
    }
  }
  return merged;
}

Status Store(const char* op, const std::vector<Dim>& dims, uint32_t* sizes, int64_t* strides) {
  if (dims.size() > STRIDED_DIMS) {
    return Unimplemented(op, ": the axes split the input into ", dims.size(),
                         " groups, the METAL device has ", STRIDED_DIMS,
                         "; reduce in two steps, or place the op on the CPU");
  }
  for (size_t d = 0; d < STRIDED_DIMS; ++d) {
    const Dim dim = d < dims.size() ? dims[d] : Dim{1, 0};
    if (dim.size >= int64_t{1} << 32) {
      return Unimplemented(op, ": a run of ", dim.size,
                           " elements is more than 2^32 - 1; reshape the input to split it");
    }
    sizes[d] = static_cast<uint32_t>(dim.size);
    strides[d] = dim.stride;
  }
  return Status();
}

template <typename Op>
class ReduceOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ReduceOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("keep_dims", &keep_dims_));
  }

  void Compute(KernelContext* ctx) {
    Tensor input, axes, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &input));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &axes));
    std::vector<bool> reduced(input.rank(), false);
    for (int64_t i = 0; i < axes.num_elements(); ++i) {
      const int64_t axis =
          axes.dtype() == TF_INT64 ? axes.host<int64_t>()[i] : axes.host<int32_t>()[i];
      OP_REQUIRES(ctx, axis >= -input.rank() && axis < input.rank(),
                  InvalidArgument(kOp, ": Invalid reduction dimension ", axis, " for input ",
                                  ToString(input.shape()), "; expected one in [", -input.rank(),
                                  ", ", input.rank(), ")"));
      reduced[(axis + input.rank()) % input.rank()] = true;
    }
    Shape shape;
    std::vector<Dim> kept_dims, reduced_dims;
    int64_t count = 1;
    const std::vector<int64_t> strides = DenseStrides(input.shape());
    for (int d = 0; d < input.rank(); ++d) {
      const Dim dim = {input.dim(d), strides[d]};
      (reduced[d] ? reduced_dims : kept_dims).push_back(dim);
      if (reduced[d]) count *= dim.size;
      if (!reduced[d] || keep_dims_) shape.push_back(reduced[d] ? 1 : dim.size);
    }
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    const int64_t outputs = out.num_elements();
    if (outputs == 0) return;

    // Each pass leaves `chunks` partial sums an output; the last leaves one.
    ReduceParams params = {};
    OP_REQUIRES_OK(ctx, Store(kOp, Merge(kept_dims), params.kept_dims, params.kept_strides));
    OP_REQUIRES_OK(ctx,
                   Store(kOp, Merge(reduced_dims), params.reduced_dims, params.reduced_strides));
    params.count = static_cast<uint64_t>(count);
    params.divisor = 1.0f;
    const TF_DataType sum_type = out.dtype() == TF_INT64 ? TF_INT64 : TF_FLOAT;
    std::vector<Tensor> partial;  // alive until all is encoded
    std::vector<ReduceParams> passes;
    while (true) {
      params.chunk = REDUCE_CHUNK;
      const uint64_t chunks =
          std::max<uint64_t>(1, (params.count + REDUCE_CHUNK - 1) / REDUCE_CHUNK);
      params.chunks = static_cast<uint32_t>(chunks);
      OP_REQUIRES(ctx, chunks < (uint64_t{1} << 32) && outputs < (int64_t{1} << 32),
                  Unimplemented(kOp, ": ", count, " elements for ", outputs,
                                " outputs are more than one Metal grid; reduce in two steps"));
      if (chunks == 1) break;
      passes.push_back(params);
      partial.emplace_back();
      OP_REQUIRES_OK(ctx, ctx->AllocateTemp(sum_type, {outputs, static_cast<int64_t>(chunks)},
                                            &partial.back()));
      // The next pass reads rows of `chunks` partial sums.
      params = ReduceParams();
      std::fill(params.kept_dims, params.kept_dims + STRIDED_DIMS, 1u);
      std::fill(params.reduced_dims, params.reduced_dims + STRIDED_DIMS, 1u);
      params.kept_dims[0] = static_cast<uint32_t>(outputs);
      params.kept_strides[0] = static_cast<int64_t>(chunks);
      params.reduced_dims[0] = static_cast<uint32_t>(chunks);
      params.reduced_strides[0] = 1;
      params.count = chunks;
      params.divisor = 1.0f;
    }
    if (Op::kMean) params.divisor = static_cast<float>(count);
    passes.push_back(params);

    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
                     for (size_t i = 0; i < passes.size(); ++i) {
                       const Tensor& from = i == 0 ? input : partial[i - 1];
                       const Tensor& to = i < partial.size() ? partial[i] : out;
                       RETURN_IF_ERROR(encoder.Launch(
                           {"sum", from.dtype(), to.dtype()}, Grid(passes[i].chunks, outputs),
                           {{"in", from}, {"out", to}, {"params", passes[i]}}));
                     }
                     return Status();
                   }));
  }

 private:
  bool keep_dims_ = false;
};

struct Sum {
  static constexpr char kOp[] = "Sum";
  static constexpr bool kMean = false;
};
struct Mean {
  static constexpr char kOp[] = "Mean";
  static constexpr bool kMean = true;
};
REGISTER_METAL_KERNEL(ReduceOp<Sum>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT64})
                                         .HostMemory("reduction_indices"));
REGISTER_METAL_KERNEL(
    ReduceOp<Mean>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("reduction_indices"));

}  // namespace
}  // namespace metal_ops
