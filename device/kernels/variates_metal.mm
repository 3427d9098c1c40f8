// RandomGamma, RandomPoisson, ParameterizedTruncatedNormal and those of their kind without a state: drawn on
// the host, as TensorFlow's CPU kernels do it.

#include <dispatch/dispatch.h>
#include <fenv.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <type_traits>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/random.h"
#include "device/kernels/variates.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

Status CheckVector(const char* op, const Tensor& shape) {
  if (shape.rank() == 1) return Status();
  return InvalidArgument(op, ": shape must be a vector of {int32,int64}, got shape ",
                         ToString(shape.shape()));
}

Status CheckEnd(const char* op, const Shape& shape, const Shape& end) {
  if (shape.size() >= end.size() && std::equal(end.rbegin(), end.rend(), shape.rbegin())) {
    return Status();
  }
  return InvalidArgument(op, ": Shape passed in must end with broadcasted shape. It is ",
                         ToString(shape), ", that of the parameters ", ToString(end));
}

PhiloxRandom ToGenerator(const RandomParams& p) {
  PhiloxRandom::ResultType counter;
  PhiloxRandom::Key key;
  for (int i = 0; i < 4; ++i) counter[i] = p.counter[i];
  for (int i = 0; i < 2; ++i) key[i] = p.key[i];
  return PhiloxRandom(counter, key);
}

// Calls work(type) with a number of the dtype's type.
template <typename Work>
Status WithType(const char* op, DType dtype, const Work& work) {
  switch (dtype) {
    case DType::kHalf:
      return work(Eigen::half());
    case DType::kFloat:
      return work(float());
    case DType::kInt32:
      return work(int32_t());
    case DType::kInt64:
      return work(int64_t());
    default:
      return Internal(op, ": no numbers of ", ToString(dtype));
  }
}

template <typename T>
Status Upload(KernelContext* ctx, const char* op, const std::vector<T>& numbers,
              const Tensor& out) {
  return Encode(ctx, [&](Encoder& encoder) {
    const auto n = static_cast<int64_t>(numbers.size());
    return EncodeCopy(encoder, op, {n}, HostArray(numbers.data(), n), {{1}}, out, {{1}});
  });
}

// ---- a parameter, and numbers of it -------------------------------------------------------------

template <typename U>
struct PoissonOf : Poisson {
  explicit PoissonOf(double rate)
      : Poisson(rate, static_cast<double>(Eigen::NumTraits<U>::highest())) {}
};

// out[sample, parameter] for all of both, each from a generator of its own, on all of the processor's cores.
template <typename Distribution, typename T, typename U>
struct Drawing {
  static constexpr int64_t kBlock = 1024;

  void Run() {
    const auto n = static_cast<int64_t>(out.size());
    const auto blocks = static_cast<size_t>((n + kBlock - 1) / kBlock);
    const auto block = [](void* drawing, size_t i) {
      static_cast<Drawing*>(drawing)->Block(static_cast<int64_t>(i));
    };
    dispatch_apply_f(blocks, dispatch_get_global_queue(0, 0), this, block);
  }

  void Block(int64_t block) {
    const int64_t end = std::min(static_cast<int64_t>(out.size()), (block + 1) * kBlock);
    for (int64_t i = block * kBlock; i < end;) {
      const int64_t at = i / samples, next = std::min(end, (at + 1) * samples);
      const Distribution distribution(static_cast<double>(parameters[at]));
      for (; i < next; ++i) {
        PhiloxRandom own = generator;
        own.Skip(kGroupsOfOne * static_cast<uint64_t>(i));
        double number;
        if (!distribution.Draw(own, &number)) failed = at;
        out[static_cast<size_t>(i % samples * count + at)] = Round(number);
      }
    }
  }

  // TensorFlow's threads have numbers below float32's smallest normal one be 0.
  static U Round(double number) {
    if (std::isinf(number)) return std::numeric_limits<U>::infinity();
    return static_cast<U>(number < std::numeric_limits<float>::min() ? 0.0 : number);
  }

  const T* parameters;
  int64_t count, samples;
  PhiloxRandom generator;
  std::vector<U> out;
  std::atomic<int64_t> failed{-1};
};

template <typename Op>
class DistributionOp {
 public:
  static constexpr const char* kOp = Op::kOp;
  using Source = typename Op::Source;
  static constexpr bool kStateful = std::is_same_v<Source, FromState>;

  explicit DistributionOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, source_.Init(ctx, kOp)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor shape_tensor, parameters, out;
    Shape shape;
    RandomParams p = {};
    RETURN_IF_ERROR(ctx->Input(0, &shape_tensor));
    RETURN_IF_ERROR(ctx->Input(Source::kInputs, &parameters));
    if (kStateful) RETURN_IF_ERROR(CheckVector(kOp, shape_tensor));
    RETURN_IF_ERROR(Indices(kOp, "shape", shape_tensor, &shape));
    RETURN_IF_ERROR(CheckShape(kOp, "shape", shape));
    // One that keeps a state is given the shape of the samples of each parameter, others all of it.
    if (kStateful) {
      shape.insert(shape.end(), parameters.shape().begin(), parameters.shape().end());
      RETURN_IF_ERROR(CheckShape(kOp, "shape", shape));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (!kStateful) RETURN_IF_ERROR(source_.Get(ctx, kOp, 0, &p));
    const int64_t total = out.num_elements();
    if (total == 0) return Status();
    RETURN_IF_ERROR(CheckEnd(kOp, shape, parameters.shape()));
    if (kStateful) RETURN_IF_ERROR(source_.Get(ctx, kOp, total, &p));
    return WithType(kOp, parameters.dtype(), [&](auto in) {
      return WithType(kOp, out.dtype(), [&](auto to) {
        return Draw<decltype(in), decltype(to)>(ctx, parameters, ToGenerator(p), out);
      });
    });
  }

  template <typename T, typename U>
  static Status Draw(KernelContext* ctx, const Tensor& parameters, const PhiloxRandom& generator,
                     const Tensor& out) {
    using Distribution = typename Op::template Distribution<U>;
    const int64_t count = parameters.num_elements(), total = out.num_elements();
    Drawing<Distribution, T, U> drawing = {parameters.host<T>(), count, total / count, generator,
                                           std::vector<U>(static_cast<size_t>(total))};
    drawing.Run();
    if (drawing.failed >= 0) {
      return InvalidArgument(kOp, ": rate must be a number whose samples ", ToString(out.dtype()),
                             " can hold, got ",
                             static_cast<double>(drawing.parameters[drawing.failed]));
    }
    return Upload(ctx, kOp, drawing.out, out);
  }

  Source source_;
};

#define DISTRIBUTION(op, From, To, ...) \
  struct op {                           \
    static constexpr char kOp[] = #op;  \
    using Source = From;                \
    template <typename U>               \
    using Distribution = To;            \
  };                                    \
  REGISTER_METAL_KERNEL(DistributionOp<op>, __VA_ARGS__.HostMemory("shape"))
#define HALF_OR_FLOAT {TF_HALF, TF_FLOAT}
#define GAMMA(op, From, attr, ...) \
  DISTRIBUTION(op, From, Gamma, .Types(attr, HALF_OR_FLOAT).HostMemory("alpha") __VA_ARGS__)
GAMMA(RandomGamma, FromState, "T");
GAMMA(StatelessRandomGammaV2, FromSeed, "dtype", .HostMemory("seed"));
GAMMA(StatelessRandomGammaV3, FromHostKey, "dtype",
      .HostMemory("key").HostMemory("counter").HostMemory("alg"));

DISTRIBUTION(RandomPoisson, FromState, PoissonOf<U>,
             .Types("dtype", HALF_OR_FLOAT).HostMemory("rate"));
#define RATES {TF_HALF, TF_FLOAT, TF_INT32, TF_INT64}
struct RandomPoissonV2 {
  static constexpr char kOp[] = "RandomPoissonV2";
  using Source = FromState;
  template <typename U>
  using Distribution = PoissonOf<U>;
};
struct StatelessRandomPoisson {
  static constexpr char kOp[] = "StatelessRandomPoisson";
  using Source = FromSeed;
  template <typename U>
  using Distribution = PoissonOf<U>;
};
#define POISSON_OF(dtype)                                                                  \
  REGISTER_METAL_KERNEL(                                                                   \
      DistributionOp<RandomPoissonV2>,                                                     \
      .Types("R", RATES).Where("dtype", dtype).HostMemory("shape").HostMemory("rate"));    \
  REGISTER_METAL_KERNEL(DistributionOp<StatelessRandomPoisson>, .Types("Rtype", RATES)     \
                                                                    .Where("dtype", dtype) \
                                                                    .HostMemory("shape")   \
                                                                    .HostMemory("seed")    \
                                                                    .HostMemory("lam"))
POISSON_OF(TF_HALF);
POISSON_OF(TF_FLOAT);
POISSON_OF(TF_INT32);
POISSON_OF(TF_INT64);

// ---- normal numbers between bounds --------------------------------------------------------------

// Inputs `first` to `first` + 3: mean, deviation, lower and upper bound.
struct Bounds {
  static constexpr const char* kNames[] = {"means", "stddevs", "minvals", "maxvals"};

  Status Get(KernelContext* ctx, int first) {
    for (int i = 0; i < 4; ++i) RETURN_IF_ERROR(ctx->Input(first + i, &tensors[i]));
    return Status();
  }

  // Numbers for each element of `batches`, or the same for all.
  template <typename T>
  Status Set(const char* op, const Shape& batches, int64_t batch, BetweenBounds<T>* to) const {
    T values[4];
    for (int i = 0; i < 4; ++i) values[i] = tensors[i].host<T>()[At(i, batches, batch)];
    if (to->Set(values[0], values[1], values[2], values[3])) return Status();
    return InvalidArgument(op, ": Invalid parameters: stddevs must be above 0, minvals below ",
                           "maxvals and one of both finite; got mean ", Number(values[0]),
                           ", stddev ", Number(values[1]), ", minval ", Number(values[2]),
                           " and maxval ", Number(values[3]));
  }

  Tensor tensors[4];

 private:
  template <typename T>
  static double Number(T value) {
    return static_cast<double>(value);
  }

  int64_t At(int i, const Shape& batches, int64_t batch) const {
    const Walk walk = Broadcast(tensors[i].shape(), batches);
    int64_t at = 0;
    for (size_t k = batches.size(); k-- > 0;) {
      at += batch % batches[k] * walk.strides[k];
      batch /= batches[k];
    }
    return at;
  }
};

// A generator's calls in their order, made ahead on all of the processor's cores: which of its numbers a
// distribution takes does not depend on those before. None is made that is not wanted.
template <typename T>
class Ahead {
 public:
  using Tried = typename BetweenBounds<T>::Tried;

  explicit Ahead(const PhiloxRandom& generator) : generator_(generator) { fegetenv(&floats_); }

  // The calls from here on are of `between`, for `left` numbers at least.
  void Begin(const BetweenBounds<T>& between, int64_t left) {
    generator_.Skip(at_ * between_.groups());
    tried_.clear();
    at_ = 0;
    between_ = between;
    left_ = left;
  }

  // n numbers, `stride` apart.
  Status Draw(const char* op, int64_t n, int64_t stride, T* out) {
    const auto next = [this](int64_t done) -> const Tried& {
      if (at_ == tried_.size()) Make(left_ - done);
      return tried_[at_++];
    };
    const char* const way = between_.Draw(next, n, stride, out);
    left_ -= n;
    if (way == nullptr) return Status();
    return Internal(op, ": TruncatedNormal ", way, " a sample.");
  }

 private:
  static constexpr size_t kBlock = 512, kMost = 32 * kBlock;

  void Make(int64_t left) {
    generator_.Skip(at_ * between_.groups());
    at_ = 0;
    const auto picks = static_cast<size_t>(between_.picks());
    const size_t wanted = (static_cast<size_t>(left) + picks - 1) / picks;
    tried_.resize(std::min(wanted, kMost));
    const size_t blocks = (tried_.size() + kBlock - 1) / kBlock;
    if (blocks == 1) return Block(0);
    dispatch_apply_f(blocks, dispatch_get_global_queue(0, 0), this, [](void* ahead, size_t block) {
      // Subnormals are treated as on the calling thread.
      fenv_t floats;
      fegetenv(&floats);
      fesetenv(&static_cast<Ahead*>(ahead)->floats_);
      static_cast<Ahead*>(ahead)->Block(block);
      fesetenv(&floats);
    });
  }

  void Block(size_t block) {
    const size_t end = std::min(tried_.size(), (block + 1) * kBlock);
    PhiloxRandom own = generator_;
    own.Skip(block * kBlock * between_.groups());
    for (size_t i = block * kBlock; i < end; ++i) tried_[i] = between_.Try(&own);
  }

  PhiloxRandom generator_;  // at the first of `tried_`
  BetweenBounds<T> between_;
  fenv_t floats_;
  std::vector<Tried> tried_;
  size_t at_ = 0;
  int64_t left_ = 0;
};

// Numbers of a batch one after the other, batch after batch from one generator. A CPU with many threads
// begins anew in each thread's first batch; here all go on.
class TruncatedNormalOp {
 public:
  static constexpr char kOp[] = "ParameterizedTruncatedNormal";

  explicit TruncatedNormalOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, source_.Init(ctx, kOp));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor shape_tensor, out;
    Shape shape;
    Bounds bounds;
    RETURN_IF_ERROR(ctx->Input(0, &shape_tensor));
    RETURN_IF_ERROR(bounds.Get(ctx, 1));
    if (shape_tensor.rank() != 1) {
      return InvalidArgument(
          kOp, ": Input shape should be a vector, got shape: ", ToString(shape_tensor.shape()));
    }
    if (shape_tensor.num_elements() == 0) {
      return InvalidArgument(kOp, ": Shape tensor must not be empty, got shape ",
                             ToString(shape_tensor.shape()));
    }
    RETURN_IF_ERROR(Indices(kOp, "shape", shape_tensor, &shape));
    RETURN_IF_ERROR(CheckShape(kOp, "shape", shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    for (int i = 0; i < 4; ++i) {
      if (bounds.tensors[i].rank() <= 1) continue;
      return InvalidArgument(
          kOp, ": Input ", Bounds::kNames[i],
          " should be a scalar or vector, got shape: ", ToString(bounds.tensors[i].shape()));
    }
    const int64_t total = out.num_elements();
    int64_t batches = shape[0], samples = batches == 0 ? 0 : total / batches;
    Shape of_batches = {batches};
    if (bounds.tensors[0].num_elements() == 1 && bounds.tensors[1].num_elements() == 1 &&
        bounds.tensors[2].rank() == 0 && bounds.tensors[3].rank() == 0) {
      samples = 100;
      batches = (total + samples - 1) / samples;
      of_batches = {1};
    } else {
      for (int i = 0; i < 4; ++i) {
        const int64_t n = bounds.tensors[i].num_elements();
        if (n == 1 || n == batches) continue;
        return InvalidArgument(
            kOp, ": Input ", Bounds::kNames[i],
            " should have length 1 or shape[0], got shape: ", ToString(bounds.tensors[i].shape()));
      }
    }
    const PhiloxRandom generator = source_.Take(
        static_cast<uint64_t>(batches * 2 * BetweenBounds<float>::kTries * (samples + 3) / 4));
    if (total == 0) return Status();
    const auto draw = [&](auto type) -> Status {
      using T = decltype(type);
      std::vector<T> numbers(static_cast<size_t>(total));
      BetweenBounds<T> between;
      Ahead<T> ahead(generator);
      for (int64_t b = 0; b < batches; ++b) {
        const int64_t first = b * samples, n = std::min(samples, total - first);
        if (b < of_batches[0]) {
          RETURN_IF_ERROR(bounds.Set(kOp, of_batches, b, &between));
          ahead.Begin(between, of_batches[0] == 1 ? total : n);
        }
        RETURN_IF_ERROR(ahead.Draw(kOp, n, 1, &numbers[first]));
      }
      return Upload(ctx, kOp, numbers, out);
    };
    return out.dtype() == TF_HALF ? draw(Eigen::half()) : draw(float());
  }

  FromState source_;
};
REGISTER_METAL_KERNEL(TruncatedNormalOp, .Types("dtype", HALF_OR_FLOAT)
                                             .HostMemory("shape")
                                             .HostMemory("means")
                                             .HostMemory("stdevs")
                                             .HostMemory("minvals")
                                             .HostMemory("maxvals"));

// The last dimensions are those of the parameters; all samples of one come one after the other.
class StatelessTruncatedNormalOp {
 public:
  static constexpr char kOp[] = "StatelessParameterizedTruncatedNormal";

  explicit StatelessTruncatedNormalOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor shape_tensor, out;
    Shape shape, all;
    RandomParams p = {};
    Bounds bounds;
    RETURN_IF_ERROR(ctx->Input(0, &shape_tensor));
    RETURN_IF_ERROR(bounds.Get(ctx, 2));
    RETURN_IF_ERROR(FromSeed::Get(ctx, kOp, 0, &p));
    for (const Tensor& parameter : bounds.tensors) {
      Shape both;
      if (!BroadcastShape(kOp, all, parameter.shape(), &both).ok()) return Incompatible(bounds);
      all = both;
    }
    if (shape_tensor.rank() != 1) {
      return InvalidArgument(
          kOp, ": Input shape should be a vector, got shape: ", ToString(shape_tensor.shape()));
    }
    RETURN_IF_ERROR(Indices(kOp, "shape", shape_tensor, &shape));
    RETURN_IF_ERROR(CheckShape(kOp, "shape", shape));
    RETURN_IF_ERROR(CheckEnd(kOp, shape, all));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    const int64_t total = out.num_elements();
    if (total == 0) return Status();
    const auto draw = [&](auto type) -> Status {
      using T = decltype(type);
      const int64_t batches = NumElements(all);
      std::vector<T> numbers(static_cast<size_t>(total));
      BetweenBounds<T> between;
      Ahead<T> ahead(ToGenerator(p));
      for (int64_t b = 0; b < batches; ++b) {
        RETURN_IF_ERROR(bounds.Set(kOp, all, b, &between));
        ahead.Begin(between, total / batches);
        RETURN_IF_ERROR(ahead.Draw(kOp, total / batches, batches, &numbers[b]));
      }
      return Upload(ctx, kOp, numbers, out);
    };
    return out.dtype() == TF_HALF ? draw(Eigen::half()) : draw(float());
  }

  static Status Incompatible(const Bounds& bounds) {
    return InvalidArgument(kOp, ": means, stddevs, minvals, maxvals must have compatible batch ",
                           "dimensions: ", ToString(bounds.tensors[0].shape()), " vs. ",
                           ToString(bounds.tensors[1].shape()), " vs. ",
                           ToString(bounds.tensors[2].shape()), " vs. ",
                           ToString(bounds.tensors[3].shape()));
  }
};
REGISTER_METAL_KERNEL(StatelessTruncatedNormalOp, .Types("dtype", HALF_OR_FLOAT)
                                                      .HostMemory("shape")
                                                      .HostMemory("seed")
                                                      .HostMemory("means")
                                                      .HostMemory("stddevs")
                                                      .HostMemory("minvals")
                                                      .HostMemory("maxvals"));

}  // namespace
}  // namespace metal_ops
