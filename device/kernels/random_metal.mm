// Random numbers, those of TensorFlow's own kernels: of a key and a counter, of a seed, and of a
// generator that goes on; uniform, normal, normal within 2, and integers; generators in variables; shuffled rows; classes by
// their logits.

#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/gather.h"
#include "device/kernels/gather_params.h"
#include "device/kernels/layout.h"
#include "device/kernels/random.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variable.h"
#include "tensorflow/core/lib/random/random_distributions.h"

namespace metal_ops {
namespace {

// Into an output that is new: there is no work on it to be waited for.
Status WriteNew(const Tensor& out, const void* values) {
  BufferRef ref;
  RETURN_IF_ERROR(ResolveBuffer(out, &ref));
  if (WriteTensorMemory(ref.buffer, ref.offset, values, out.byte_size())) return Status();
  return Internal("the device refused a copy from the host");
}

// The results are the device's, although it has no work here: TensorFlow copies 64-bit numbers there that are the
// host's, if the op is called outside of functions, in ten times the time that this takes.
template <typename Op>
class KeyCounterOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit KeyCounterOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor seed, key, counter, alg;
    RandomParams p = {};
    OP_REQUIRES_OK(ctx, ctx->Input(0, &seed));
    OP_REQUIRES_OK(ctx, Scramble(kOp, seed, &p));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, {1}, &key));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(1, {2}, &counter));
    OP_REQUIRES_OK(ctx, WriteNew(key, p.key));
    OP_REQUIRES_OK(ctx, WriteNew(counter, p.counter));
    if (!Op::kAlgorithm) return;
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(2, {}, &alg));
    *alg.mutable_host<int32_t>() = kPhilox;
  }
};
struct KeyCounter {
  static constexpr char kOp[] = "StatelessRandomGetKeyCounter";
  static constexpr bool kAlgorithm = false;
};
struct KeyCounterAlg {
  static constexpr char kOp[] = "StatelessRandomGetKeyCounterAlg";
  static constexpr bool kAlgorithm = true;
};
#define KEY_COUNTER .Types("Tseed", {TF_INT32, TF_INT64}).HostMemory("seed")
REGISTER_METAL_KERNEL(KeyCounterOp<KeyCounter>, KEY_COUNTER);
REGISTER_METAL_KERNEL(KeyCounterOp<KeyCounterAlg>, KEY_COUNTER.HostMemory("alg"));

class AlgorithmOp {
 public:
  static constexpr char kOp[] = "StatelessRandomGetAlg";

  explicit AlgorithmOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor alg;
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, {}, &alg));
    *alg.mutable_host<int32_t>() = kPhilox;
  }
};
REGISTER_METAL_KERNEL(AlgorithmOp, .HostMemory("alg"));

// ---- the numbers --------------------------------------------------------------------------------

template <typename Op>
class RandomOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit RandomOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, source_.Init(ctx, kOp)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor shape_tensor, out;
    Shape shape;
    RandomParams p = {};
    RETURN_IF_ERROR(ctx->Input(Op::Source::kShape, &shape_tensor));
    RETURN_IF_ERROR(Indices(kOp, "shape", shape_tensor, &shape));
    RETURN_IF_ERROR(CheckShape(kOp, "shape", shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    const int64_t total = out.num_elements(), group = out.element_bytes() == 8 ? 2 : 4;
    const int64_t groups = (total + group - 1) / group;
    RETURN_IF_ERROR(CheckGrid(kOp, "random numbers", groups));
    p.total = static_cast<uint64_t>(total);
    if (total == 0) return Status();
    if (Op::kRange) RETURN_IF_ERROR(Range(ctx, &p));
    RETURN_IF_ERROR(source_.Get(ctx, kOp, total, &p));
    const Shader shader{Op::kShader, Op::kSignless ? Unsigned(out.dtype()) : out.dtype()};
    if constexpr (std::is_same_v<typename Op::Source, FromKey>) {
      Tensor key, counter, whole;
      RETURN_IF_ERROR(KeyInputs(ctx, kOp, &key, &counter));
      RETURN_IF_ERROR(ctx->AllocateTemp(TF_UINT8, {sizeof p}, &whole));
      return Encode(ctx, [&](Encoder& encoder) -> Status {
        RETURN_IF_ERROR(encoder.Launch("random_params", Grid(1),
                                       {{"out", Value(whole).Untyped()},
                                        {"p", p},
                                        {"key", Value(key).Untyped()},
                                        {"counter", Value(counter).Untyped()}}));
        return encoder.Launch(shader, Grid(groups), {{"out", out}, {"p", Value(whole).Untyped()}});
      });
    }
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(shader, Grid(groups), {{"out", out}, {"p", p}});
    });
  }

  static Status Range(KernelContext* ctx, RandomParams* p) {
    Tensor low, high;
    RETURN_IF_ERROR(ctx->Input(Op::Source::kInputs, &low));
    RETURN_IF_ERROR(ctx->Input(Op::Source::kInputs + 1, &high));
    if (low.rank() != 0 || high.rank() != 0) {
      return InvalidArgument(kOp, ": minval and maxval must be scalars, got ",
                             ToString(low.shape()), " and ", ToString(high.shape()));
    }
    const bool wide = low.dtype() == TF_INT64;
    const int64_t first = wide ? *low.host<int64_t>() : *low.host<int32_t>();
    const int64_t end = wide ? *high.host<int64_t>() : *high.host<int32_t>();
    if (first >= end) {
      return InvalidArgument(kOp, ": Need minval < maxval, got ", first, " >= ", end);
    }
    p->low = first;
    p->range = static_cast<uint64_t>(end) - static_cast<uint64_t>(first);
    return Status();
  }

  typename Op::Source source_;
};

#define RANDOM(op, From, shader, signless, range, ...) \
  struct op {                                          \
    static constexpr char kOp[] = #op;                 \
    static constexpr char kShader[] = shader;          \
    static constexpr bool kSignless = signless;        \
    static constexpr bool kRange = range;              \
    using Source = From;                               \
  };                                                   \
  REGISTER_METAL_KERNEL(RandomOp<op>, __VA_ARGS__.HostMemory("shape"))
#define FLOATS .Types("dtype", METAL_DEVICE_FLOATS)
#define WHOLE .Types("dtype", {TF_INT32, TF_INT64}).HostMemory("minval").HostMemory("maxval")
#define FULL .Types("dtype", {TF_INT32, TF_INT64, TF_UINT32, TF_UINT64})
#define KEY .HostMemory("alg")
#define SEED .HostMemory("seed")
RANDOM(StatelessRandomUniformV2, FromKey, "random_uniform", false, false, FLOATS KEY);
RANDOM(StatelessRandomNormalV2, FromKey, "random_normal", false, false, FLOATS KEY);
RANDOM(StatelessTruncatedNormalV2, FromKey, "random_truncated_normal", false, false, FLOATS KEY);
RANDOM(StatelessRandomUniformIntV2, FromKey, "random_uniform", false, true, WHOLE KEY);
RANDOM(StatelessRandomUniformFullIntV2, FromKey, "random_full", true, false, FULL KEY);
RANDOM(StatelessRandomUniform, FromSeed, "random_uniform", false, false, FLOATS SEED);
RANDOM(StatelessRandomNormal, FromSeed, "random_normal", false, false, FLOATS SEED);
RANDOM(StatelessTruncatedNormal, FromSeed, "random_truncated_normal", false, false, FLOATS SEED);
RANDOM(StatelessRandomUniformInt, FromSeed, "random_uniform", false, true, WHOLE SEED);
RANDOM(StatelessRandomUniformFullInt, FromSeed, "random_full", true, false, FULL SEED);
RANDOM(RandomUniform, FromState, "random_uniform", false, false, FLOATS);
RANDOM(RandomStandardNormal, FromState, "random_normal", false, false, FLOATS);
RANDOM(TruncatedNormal, FromState, "random_truncated_normal", false, false, FLOATS);
RANDOM(RandomUniformInt, FromState, "random_uniform", false, true,
       .Types("Tout", {TF_INT32, TF_INT64}).HostMemory("minval").HostMemory("maxval"));

#define VARIABLE .HostMemory("resource").HostMemory("algorithm")
RANDOM(StatefulUniform, FromVariable, "random_uniform", false, false, FLOATS VARIABLE);
RANDOM(StatefulStandardNormalV2, FromVariable, "random_normal", false, false, FLOATS VARIABLE);
RANDOM(StatefulTruncatedNormal, FromVariable, "random_truncated_normal", false, false,
       FLOATS VARIABLE);
RANDOM(StatefulUniformInt, FromVariable, "random_uniform", false, true, WHOLE VARIABLE);
RANDOM(StatefulUniformFullInt, FromVariable, "random_full", true, false, FULL VARIABLE);

// ---- classes by their logits --------------------------------------------------------------------

// Input 2 is the seed of one without a state.
class FromThirdInput {
 public:
  Status Init(KernelConstruction*, const char*) { return Status(); }
  static Status Get(KernelContext* ctx, const char* op, int64_t, RandomParams* p) {
    Tensor seed;
    RETURN_IF_ERROR(ctx->Input(2, &seed));
    return Scramble(op, seed, p);
  }
};

// The CPU's classes but where a number falls within rounding of the border between two: it adds in
// float64. A CPU with many threads begins anew in each thread's first row; here rows go on.
template <typename Op>
class MultinomialOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit MultinomialOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, source_.Init(ctx, kOp)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor logits, samples_tensor, out, sums;
    RETURN_IF_ERROR(ctx->Input(0, &logits));
    RETURN_IF_ERROR(ctx->Input(1, &samples_tensor));
    if (logits.rank() != 2 || logits.dim(1) == 0) {
      return InvalidArgument(kOp, ": logits must be [rows, classes] with at least one class, got ",
                             ToString(logits.shape()));
    }
    if (samples_tensor.rank() != 0) {
      return InvalidArgument(kOp, ": num_samples should be a scalar, got shape ",
                             ToString(samples_tensor.shape()));
    }
    const int64_t rows = logits.dim(0), samples = *samples_tensor.host<int32_t>();
    if (samples < 0) {
      return InvalidArgument(kOp, ": num_samples should be non-negative, got ", samples);
    }
    RETURN_IF_ERROR(CheckGrid(kOp, "rows", rows));
    RETURN_IF_ERROR(CheckGrid(kOp, "classes", logits.dim(1)));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {rows, samples}, &out));
    if (out.num_elements() == 0) return Status();
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, logits.shape(), &sums));
    RandomParams p = {};
    RETURN_IF_ERROR(source_.Get(ctx, kOp, rows * ((samples + 3) / 4 * 4) * 2, &p));
    const auto classes = static_cast<uint32_t>(logits.dim(1));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(encoder.Launch({"multinomial_sums", logits.dtype()}, Grid(rows),
                                     {{"logits", logits}, {"sums", sums}, {"classes", classes}}));
      return encoder.Launch({"multinomial_draw", out.dtype()}, Grid(samples, rows),
                            {{"sums", sums}, {"out", out}, {"classes", classes}, {"p", p}});
    });
  }

  typename Op::Source source_;
};
struct Multinomial {
  static constexpr char kOp[] = "Multinomial";
  using Source = FromState;
};
struct StatelessMultinomial {
  static constexpr char kOp[] = "StatelessMultinomial";
  using Source = FromThirdInput;
};
#define LOGITS .Types("T", METAL_DEVICE_FLOATS).HostMemory("num_samples")
REGISTER_METAL_KERNEL(MultinomialOp<Multinomial>, LOGITS.Where("output_dtype", TF_INT32));
REGISTER_METAL_KERNEL(MultinomialOp<Multinomial>, LOGITS.Where("output_dtype", TF_INT64));
REGISTER_METAL_KERNEL(MultinomialOp<StatelessMultinomial>,
                      LOGITS.HostMemory("seed").Where("output_dtype", TF_INT32));
REGISTER_METAL_KERNEL(MultinomialOp<StatelessMultinomial>,
                      LOGITS.HostMemory("seed").Where("output_dtype", TF_INT64));

// ---- generators in variables, and shuffling -----------------------------------------------------

// The variable `resource`: a counter of two numbers and a key. Output 0 is its old value.
template <typename Op>
class SkipOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit SkipOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    VariableLock lock(ctx, /*exclusive=*/true, {0});
    Tensor state;
    OP_REQUIRES_OK(ctx, lock.Get(0, &state));
    OP_REQUIRES_OK(ctx, Run(ctx, state));
  }

 private:
  static Status Run(KernelContext* ctx, const Tensor& state) {
    Tensor algorithm, delta, before;
    RETURN_IF_ERROR(ctx->Input(1, &algorithm));
    RETURN_IF_ERROR(ctx->Input(2, &delta));
    RETURN_IF_ERROR(CheckState(kOp, algorithm, state));
    if (delta.num_elements() != 1) {
      return InvalidArgument(kOp, ": delta must be a scalar, got ", ToString(delta.shape()));
    }
    if (Op::kRead) RETURN_IF_ERROR(ctx->AllocateOutput(0, {3}, &before));
    // As many as TensorFlow takes for any distribution.
    const uint64_t count = *delta.host<uint64_t>() * 256;
    const uint32_t read = Op::kRead ? 1 : 0;
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("random_skip", Grid(1),
                            {{"state", Value(state).Untyped()},
                             {"before", Op::kRead ? Value(before).Untyped() : Value(Nothing())},
                             {"count", count},
                             {"read", read}});
    });
  }
};
struct RngSkip {
  static constexpr char kOp[] = "RngSkip";
  static constexpr bool kRead = false;
};
struct RngReadAndSkip {
  static constexpr char kOp[] = "RngReadAndSkip";
  static constexpr bool kRead = true;
};
REGISTER_METAL_KERNEL(SkipOp<RngSkip>,
                      .HostMemory("resource").HostMemory("algorithm").HostMemory("delta"));
REGISTER_METAL_KERNEL(SkipOp<RngReadAndSkip>,
                      .HostMemory("resource").HostMemory("alg").HostMemory("delta"));

// Rows change places one after the other, as TensorFlow has it: the host finds out which goes where.
class ShuffleOp {
 public:
  static constexpr char kOp[] = "RandomShuffle";

  explicit ShuffleOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, source_.Init(ctx, kOp)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor in, out;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    if (out.num_elements() == 0) return Status();
    const int64_t rows = in.rank() == 0 ? 1 : in.dim(0), inner = in.num_elements() / rows;
    if (rows == 1) {
      return Encode(ctx, [&](Encoder& encoder) { return encoder.Copy(in, out); });
    }
    if (rows > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument(kOp, ": value may have less than 2^31 rows, got ", rows,
                             "; place the op on the CPU");
    }
    std::vector<int32_t> order(static_cast<size_t>(rows));
    std::iota(order.begin(), order.end(), 0);
    PhiloxRandom generator = source_.Take(static_cast<uint64_t>(rows + 2) / 4);
    tensorflow::random::SingleSampleAdapter<PhiloxRandom> numbers(&generator);
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      std::swap(order[i], order[i + numbers() % static_cast<uint32_t>(order.size() - i)]);
    }
    GatherParams p = {};
    p.outer = 1;
    p.rows = p.indices = static_cast<uint64_t>(rows);
    p.inner = static_cast<uint64_t>(inner);
    p.total = static_cast<uint64_t>(out.num_elements());
    return Encode(ctx, [&](Encoder& encoder) {
      const RowShader shader = RowShaderOf("gather", inner, in.element_bytes());
      return encoder.Launch(
          {shader.stem, std::to_string(in.element_bytes()), DType::kInt32},
          shader.blocks > 0 ? Grid(shader.blocks, rows) : Grid::Flat(out.num_elements()),
          {{"params_", Value(in).Untyped()},
           {"indices", HostArray(order.data(), rows)},
           {"out", Value(out).Untyped()},
           {"p", p}});
    });
  }

  FromState source_;
};
REGISTER_METAL_KERNEL(ShuffleOp, .Types("T", METAL_DEVICE_ALL_TYPES));

}  // namespace
}  // namespace metal_ops
