// Sum, Mean, EuclideanNorm, Prod, Max, Min, All and Any over any axes; L2Loss; BiasAddGrad; ArgMax and ArgMin.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "device/kernels/arg_params.h"
#include "device/kernels/elementwise.h"
#include "device/kernels/host_int32.h"
#include "device/kernels/layout.h"
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

// The last function of the joined elements.
enum class Finish { kNothing, kMean, kHalf, kRoot };

// The types that elements are read as, added up in, and written as.
struct Types {
  DType from, total, to;
};

// out = the elements of `input` along the axes that `reduced` marks, joined by the shader.
Status Join(KernelContext* ctx, const char* op, const char* shader, Types types, Finish finish,
            const Tensor& input, const std::vector<bool>& reduced, const Tensor& out) {
  std::vector<Dim> kept_dims, reduced_dims;
  int64_t count = 1;
  const std::vector<int64_t> strides = DenseStrides(input.shape());
  for (int d = 0; d < input.rank(); ++d) {
    const Dim dim = {input.dim(d), strides[d]};
    (reduced[d] ? reduced_dims : kept_dims).push_back(dim);
    if (reduced[d]) count *= dim.size;
  }
  const int64_t outputs = out.num_elements();

  // Each pass leaves `chunks` partial sums an output; the last leaves one.
  ReduceParams params = {};
  const std::vector<Dim> kept = Merge(kept_dims), joined = Merge(reduced_dims);
  RETURN_IF_ERROR(Store(op, kept, params.kept_dims, params.kept_strides));
  RETURN_IF_ERROR(Store(op, joined, params.reduced_dims, params.reduced_strides));
  // Neighbours that are outputs of their own are read together.
  const bool columns = joined.size() == 1 && !kept.empty() && kept[0].stride == 1 &&
                       kept[0].size >= REDUCE_COLUMNS / 2;
  params.count = static_cast<uint64_t>(count);
  params.divisor = 1.0f;
  const DType total = types.total;
  std::vector<Tensor> partial;  // alive until all is encoded
  std::vector<ReduceParams> passes;
  while (true) {
    params.chunk = REDUCE_CHUNK;
    const uint64_t chunks = std::max<uint64_t>(1, (params.count + REDUCE_CHUNK - 1) / REDUCE_CHUNK);
    params.chunks = static_cast<uint32_t>(chunks);
    if (!(chunks < (uint64_t{1} << 32) && outputs < (int64_t{1} << 32))) {
      return Unimplemented(op, ": ", count, " elements for ", outputs,
                           " outputs are more than one Metal grid; reduce in two steps");
    }
    if (chunks == 1) break;
    passes.push_back(params);
    partial.emplace_back();
    RETURN_IF_ERROR(
        ctx->AllocateTemp(total, {outputs, static_cast<int64_t>(chunks)}, &partial.back()));
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
  if (finish == Finish::kMean) params.divisor = static_cast<float>(count);
  if (finish == Finish::kHalf) params.divisor = 2.0f;
  if (finish == Finish::kRoot) params.divisor = -1.0f;
  passes.push_back(params);

  return Encode(ctx, [&](Encoder& encoder) -> Status {
    for (size_t i = 0; i < passes.size(); ++i) {
      const Tensor& from = i == 0 ? input : partial[i - 1];
      const Tensor& to = i < partial.size() ? partial[i] : out;
      const DType from_type = i == 0 ? types.from : total,
                  to_type = i < partial.size() ? total : types.to;
      if (i == 0 && columns) {
        const int64_t width = kept[0].size;
        RETURN_IF_ERROR(encoder.Launch(
            {shader, "columns", from_type, to_type},
            Grid((width + REDUCE_COLUMNS - 1) / REDUCE_COLUMNS, passes[i].chunks, outputs / width),
            {{"in", from}, {"out", to}, {"params", passes[i]}}));
        continue;
      }
      RETURN_IF_ERROR(encoder.Launch(
          {i > 0 && std::string_view(shader) == "squares" ? "sum" : shader, from_type, to_type},
          Grid(passes[i].chunks, outputs), {{"in", from}, {"out", to}, {"params", passes[i]}}));
    }
    return Status();
  });
}

// The sums in 64 bits, without the remainder of the division.
Status WholeMean(KernelContext* ctx, const char* op, const Tensor& input,
                 const std::vector<bool>& reduced, const Tensor& out) {
  const DType dtype = input.dtype();
  const bool wide = SizeOf(dtype) == 8;
  Tensor temporary;
  if (!wide) RETURN_IF_ERROR(ctx->AllocateTemp(DType::kUint64, out.shape(), &temporary));
  const Tensor& sums = wide ? out : temporary;
  const DType from = wide ? DType::kUint64 : dtype;
  RETURN_IF_ERROR(Join(ctx, op, "sum", {from, DType::kUint64, DType::kUint64}, Finish::kNothing,
                       input, reduced, sums));
  RETURN_IF_ERROR(CheckGrid(op, "means", out.num_elements()));
  // Without elements the sum is 0, and so is the mean.
  const int64_t count = std::max<int64_t>(1, input.num_elements() / out.num_elements());
  const DType quotient = Unsigned(dtype) == dtype ? DType::kUint64 : DType::kInt64;
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(LaunchElementwise(encoder, {"truncate_div", quotient, "10"},
                                      sums.num_elements(),
                                      {{"a", Value(sums).Untyped()},
                                       {"b", HostArray(&count, 1)},
                                       {"out", Value(sums).Untyped()}}));
    if (wide) return Status();
    return encoder.Launch({"cast", quotient, dtype}, Grid(out.num_elements()),
                          {{"x", Value(sums).Untyped()}, {"out", out}});
  });
}

// The root of whole numbers' squares, each as wide as they are.
Status WholeNorm(KernelContext* ctx, const char* op, const Tensor& input,
                 const std::vector<bool>& reduced, const Tensor& out) {
  const DType dtype = Unsigned(input.dtype());
  Tensor squares;
  RETURN_IF_ERROR(ctx->AllocateTemp(dtype, input.shape(), &squares));
  RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
    return LaunchElementwise(encoder, {"square", dtype}, input.num_elements(),
                             {{"a", Value(input).Untyped()}, {"out", squares}});
  }));
  RETURN_IF_ERROR(
      Join(ctx, op, "sum", {dtype, dtype, dtype}, Finish::kNothing, squares, reduced, out));
  return Encode(ctx, [&](Encoder& encoder) {
    return LaunchElementwise(encoder, {"root", out.dtype()}, out.num_elements(),
                             {{"a", out}, {"out", out}});
  });
}

// The norm of complex numbers is that of their magnitudes, and real.
Status ComplexNorm(KernelContext* ctx, const char* op, const Tensor& input,
                   const std::vector<bool>& reduced, const Tensor& out) {
  Tensor magnitudes, norms;
  RETURN_IF_ERROR(ctx->AllocateTemp(DType::kFloat, input.shape(), &magnitudes));
  RETURN_IF_ERROR(ctx->AllocateTemp(DType::kFloat, out.shape(), &norms));
  RETURN_IF_ERROR(CheckGrid(op, "norms", out.num_elements()));
  RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
    return LaunchElementwise(encoder, {"abs", input.dtype()}, input.num_elements(),
                             {{"a", input}, {"out", magnitudes}});
  }));
  RETURN_IF_ERROR(Join(ctx, op, "squares", {DType::kFloat, DType::kFloat, DType::kFloat},
                       Finish::kRoot, magnitudes, reduced, norms));
  return Encode(ctx, [&](Encoder& encoder) {
    return encoder.Launch({"cast", norms.dtype(), out.dtype()}, Grid(out.num_elements()),
                          {{"x", norms}, {"out", out}});
  });
}

Shape ReducedShape(const Tensor& input, const std::vector<bool>& reduced, bool keep_dims) {
  Shape shape;
  for (int d = 0; d < input.rank(); ++d) {
    if (!reduced[d] || keep_dims) shape.push_back(reduced[d] ? 1 : input.dim(d));
  }
  return shape;
}

// Output 0 = the elements of `input` along the axes that `reduced` marks, joined by the shader.
Status Reduce(KernelContext* ctx, const char* op, const char* shader, bool signless, Finish finish,
              const Tensor& input, const std::vector<bool>& reduced, bool keep_dims) {
  Tensor out;
  RETURN_IF_ERROR(ctx->AllocateOutput(0, ReducedShape(input, reduced, keep_dims), &out));
  if (out.num_elements() == 0) return Status();
  const DType own = signless ? Unsigned(input.dtype()) : input.dtype();
  const bool is_float = IsFloat(own), is_complex = own == DType::kComplex64;
  if (finish == Finish::kRoot && is_complex) return ComplexNorm(ctx, op, input, reduced, out);
  if (finish == Finish::kRoot && !is_float) return WholeNorm(ctx, op, input, reduced, out);
  if (finish == Finish::kMean && !is_float && !is_complex)
    return WholeMean(ctx, op, input, reduced, out);
  // Floats have sums of floats; whole numbers sums of their own.
  const DType total = is_float ? DType::kFloat : own;
  return Join(ctx, op, shader, {own, total, own}, finish, input, reduced, out);
}

// The same of int32 in host memory, modulo 2^32.
Status ReduceOnHost(KernelContext* ctx, bool sum, const Tensor& input,
                    const std::vector<bool>& reduced, bool keep_dims) {
  Tensor out;
  RETURN_IF_ERROR(ctx->AllocateOutput(0, ReducedShape(input, reduced, keep_dims), &out));
  Walk to{DenseStrides(ReducedShape(input, reduced, /*keep_dims=*/true))};
  for (int d = 0; d < input.rank(); ++d) {
    if (reduced[d]) to.strides[d] = 0;
  }
  auto* const totals = reinterpret_cast<uint32_t*>(out.mutable_host<int32_t>());
  std::fill_n(totals, out.num_elements(), sum ? 0u : 1u);
  const auto* const x = reinterpret_cast<const uint32_t*>(input.host<int32_t>());
  ForEachElement(input.shape(), {DenseStrides(input.shape())}, to, [&](int64_t i, int64_t j) {
    totals[j] = sum ? totals[j] + x[i] : totals[j] * x[i];
  });
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
    Tensor input, axes;
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
      const int64_t named = (axis + input.rank()) % input.rank();
      OP_REQUIRES(ctx, !reduced[named],
                  InvalidArgument(kOp, ": Axes contains duplicate dimension: ", named));
      reduced[named] = true;
    }
    OP_REQUIRES_OK(ctx, (kSums || kOp == std::string_view("Prod")) && IsInHostMemory(input)
                            ? ReduceOnHost(ctx, kSums, input, reduced, keep_dims_)
                            : Reduce(ctx, kOp, Op::kShader, Op::kSignless, Op::kFinish, input,
                                     reduced, keep_dims_));
  }

 private:
  static constexpr bool kSums = std::string_view(Op::kOp) == "Sum";
  bool keep_dims_ = false;
};

#define REDUCTION(op, shader, signless, finish, types) \
  struct op {                                          \
    static constexpr char kOp[] = #op;                 \
    static constexpr char kShader[] = shader;          \
    static constexpr bool kSignless = signless;        \
    static constexpr Finish kFinish = Finish::finish;  \
  };                                                   \
  REGISTER_METAL_KERNEL(ReduceOp<op>, types.HostMemory("reduction_indices"))
#define NUMBERS .Types("T", METAL_DEVICE_NUMBERS)
#define ALL_NUMBERS .Types("T", METAL_DEVICE_ALL_NUMBERS)
#define FLOATS .Types("T", METAL_DEVICE_FLOATS)
REDUCTION(Sum, "sum", true, kNothing, NUMBERS);
REDUCTION(Mean, "sum", false, kMean, ALL_NUMBERS);
REGISTER_METAL_KERNEL(ReduceOp<Sum>, .Types("T", {TF_COMPLEX64}).HostMemory("reduction_indices"));
REGISTER_METAL_KERNEL(ReduceOp<Mean>, .Types("T", {TF_COMPLEX64}).HostMemory("reduction_indices"));
#define INT32_IN_HOST_MEMORY \
  .Types("T", {TF_INT32}).HostMemory("input").HostMemory("reduction_indices").HostMemory("output")
REGISTER_METAL_KERNEL(ReduceOp<Sum>, INT32_IN_HOST_MEMORY);
REDUCTION(EuclideanNorm, "squares", false, kRoot, ALL_NUMBERS);
REGISTER_METAL_KERNEL(ReduceOp<EuclideanNorm>,
                      .Types("T", {TF_COMPLEX64}).HostMemory("reduction_indices"));
REDUCTION(Prod, "prod", true, kNothing, NUMBERS);
REGISTER_METAL_KERNEL(ReduceOp<Prod>, .Types("T", {TF_COMPLEX64}).HostMemory("reduction_indices"));
REGISTER_METAL_KERNEL(ReduceOp<Prod>, INT32_IN_HOST_MEMORY);
REDUCTION(Max, "max", false, kNothing, NUMBERS);
REDUCTION(Min, "min", false, kNothing, NUMBERS);
REDUCTION(All, "all", true, kNothing, );
REDUCTION(Any, "any", true, kNothing, );

class L2LossOp {
 public:
  static constexpr char kOp[] = "L2Loss";

  explicit L2LossOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor t;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &t));
    OP_REQUIRES_OK(ctx, Reduce(ctx, kOp, "squares", /*signless=*/false, Finish::kHalf, t,
                               std::vector<bool>(t.rank(), true), /*keep_dims=*/false));
  }
};
REGISTER_METAL_KERNEL(L2LossOp, FLOATS);

class BiasAddGradOp {
 public:
  static constexpr char kOp[] = "BiasAddGrad";

  explicit BiasAddGradOp(KernelConstruction* ctx) {
    std::string data_format;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("data_format", &data_format));
    nchw_ = data_format == "NCHW";
  }

  void Compute(KernelContext* ctx) {
    Tensor d_out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &d_out));
    OP_REQUIRES(ctx, d_out.rank() >= 2,
                InvalidArgument("BiasAddGrad: out_backprop must have at least 2 dimensions, got ",
                                ToString(d_out.shape())));
    std::vector<bool> reduced(d_out.rank(), true);
    reduced[nchw_ ? 1 : d_out.rank() - 1] = false;
    OP_REQUIRES_OK(ctx, Reduce(ctx, kOp, "sum", /*signless=*/true, Finish::kNothing, d_out, reduced,
                               /*keep_dims=*/false));
  }

 private:
  bool nchw_ = false;
};
REGISTER_METAL_KERNEL(BiasAddGradOp, ALL_NUMBERS);
REGISTER_METAL_KERNEL(BiasAddGradOp, .Types("T", {TF_COMPLEX64}));

template <typename Op>
class ArgOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ArgOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor input, dimension, out;
    Shape axes;
    RETURN_IF_ERROR(ctx->Input(0, &input));
    RETURN_IF_ERROR(ctx->Input(1, &dimension));
    RETURN_IF_ERROR(Indices(kOp, "dimension", dimension, &axes));
    const int64_t rank = input.rank();
    if (axes.size() != 1 || axes[0] < -rank || axes[0] >= rank) {
      return InvalidArgument(kOp, ": Expected dimension in the range [", -rank, ", ", rank,
                             "), but got ", ToString(axes));
    }
    const size_t axis = static_cast<size_t>((axes[0] + rank) % rank);
    Shape shape = input.shape();
    const uint64_t count = static_cast<uint64_t>(shape[axis]);
    shape.erase(shape.begin() + static_cast<int64_t>(axis));
    if (count == 0) {
      return InvalidArgument(kOp, ": Reduction axis ", axis, " is empty in shape ",
                             ToString(input.shape()));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    int64_t inner = 1;
    for (size_t d = axis; d < shape.size(); ++d) inner *= shape[d];
    Tensor found;
    const bool narrow = SizeOf(out.dtype()) == 2;
    if (narrow) RETURN_IF_ERROR(ctx->AllocateTemp(DType::kInt32, shape, &found));
    const Tensor& places = narrow ? found : out;
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      const DType dtype = input.dtype() == TF_BOOL ? DType::kUint8 : input.dtype();
      RETURN_IF_ERROR(Launch(encoder, dtype, input, places, count, inner));
      if (!narrow) return Status();
      RETURN_IF_ERROR(CheckGrid(kOp, "places", out.num_elements()));
      return encoder.Launch({"cast", places.dtype(), out.dtype()}, Grid(out.num_elements()),
                            {{"x", places}, {"out", out}});
    });
  }

  // Several elements at a time where there are as many beside each other, in a row or in columns.
  static Status Launch(Encoder& encoder, DType dtype, const Tensor& input, const Tensor& places,
                       uint64_t count, int64_t inner) {
    const int64_t outer = places.num_elements() / inner;
    const bool short_enough = count <= UINT32_MAX;
    if (short_enough && inner == 1 && count >= ARG_LANES) {
      return encoder.Launch({Op::kShader, "rows", dtype, places.dtype()}, Grid(outer),
                            {{"in", input}, {"out", places}, {"count", count}});
    }
    if (short_enough && inner >= ARG_LANES) {
      return encoder.Launch({Op::kShader, "columns", dtype, places.dtype()},
                            Grid((inner + ARG_LANES - 1) / ARG_LANES, outer),
                            {{"in", input},
                             {"out", places},
                             {"count", count},
                             {"inner", static_cast<uint64_t>(inner)}});
    }
    return encoder.Launch({Op::kShader, dtype, places.dtype()}, Grid(inner, outer),
                          {{"in", input}, {"out", places}, {"count", count}});
  }
};
struct ArgMax {
  static constexpr char kOp[] = "ArgMax";
  static constexpr char kShader[] = "arg_max";
};
struct ArgMin {
  static constexpr char kOp[] = "ArgMin";
  static constexpr char kShader[] = "arg_min";
};
#define ARG_TYPES                                                                               \
  .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT8, TF_INT16, TF_INT32, TF_INT64, TF_UINT8, \
               TF_UINT16, TF_UINT32, TF_UINT64, TF_BOOL})                                       \
      .HostMemory("dimension")
REGISTER_METAL_KERNEL(ArgOp<ArgMax>, ARG_TYPES.Where("output_type", TF_INT64));
REGISTER_METAL_KERNEL(ArgOp<ArgMax>, ARG_TYPES.Where("output_type", TF_INT32));
REGISTER_METAL_KERNEL(ArgOp<ArgMax>, ARG_TYPES.Where("output_type", TF_INT16));
REGISTER_METAL_KERNEL(ArgOp<ArgMax>, ARG_TYPES.Where("output_type", TF_UINT16));
REGISTER_METAL_KERNEL(ArgOp<ArgMin>, ARG_TYPES.Where("output_type", TF_INT64));
REGISTER_METAL_KERNEL(ArgOp<ArgMin>, ARG_TYPES.Where("output_type", TF_INT32));

}  // namespace
}  // namespace metal_ops
