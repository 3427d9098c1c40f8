// StatelessRandomUniformV2, StatelessRandomUniformIntV2 and where their numbers begin,
// StatelessRandomGetKeyCounter. The numbers are those of TensorFlow's own kernels.

#include <cstring>

#include "device/kernels/layout.h"
#include "device/kernels/random_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"
#include "tensorflow/core/lib/random/philox_random.h"

namespace metal_ops {
namespace {

// Of TensorFlow's Algorithm: Philox, and the device's choice, which is Philox, too.
constexpr int32_t kPhilox = 1, kAutoSelect = 3;

// The seed may not be spread evenly over its bits: it is scrambled once (TensorFlow's
// stateless_random_ops.cc). A few numbers: the host's work.
class KeyCounterOp {
 public:
  static constexpr char kOp[] = "StatelessRandomGetKeyCounter";

  explicit KeyCounterOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor seed, key_out, counter_out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &seed));
    OP_REQUIRES(ctx, seed.shape() == Shape{2},
                InvalidArgument("seed must have shape [2], not ", ToString(seed.shape())));
    Shape seeds;
    OP_REQUIRES_OK(ctx, Indices(kOp, "seed", seed, &seeds));
    using tensorflow::random::PhiloxRandom;
    PhiloxRandom::Key key;
    key[0] = 0x3ec8f720;
    key[1] = 0x02461e29;
    PhiloxRandom::ResultType counter;
    for (int i = 0; i < 2; ++i) {
      counter[2 * i] = static_cast<uint32_t>(seeds[i]);
      counter[2 * i + 1] = static_cast<uint32_t>(static_cast<uint64_t>(seeds[i]) >> 32);
    }
    const auto mix = PhiloxRandom(counter, key)();
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, {1}, &key_out));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(1, {2}, &counter_out));
    key_out.mutable_host<uint64_t>()[0] = uint64_t{mix[1]} << 32 | mix[0];
    counter_out.mutable_host<uint64_t>()[0] = 0;
    counter_out.mutable_host<uint64_t>()[1] = uint64_t{mix[3]} << 32 | mix[2];
  }
};
REGISTER_METAL_KERNEL(KeyCounterOp, .Types("Tseed", {TF_INT32, TF_INT64})
                                        .HostMemory("seed")
                                        .HostMemory("key")
                                        .HostMemory("counter"));

// The inputs that both have. `group` is how many elements a count of the generator gives.
Status Start(KernelContext* ctx, const char* op, int64_t group, Tensor* out, RandomParams* p) {
  Tensor shape_tensor, key, counter, alg;
  RETURN_IF_ERROR(ctx->Input(0, &shape_tensor));
  RETURN_IF_ERROR(ctx->Input(1, &key));
  RETURN_IF_ERROR(ctx->Input(2, &counter));
  RETURN_IF_ERROR(ctx->Input(3, &alg));
  if (alg.rank() != 0) {
    return InvalidArgument(op, ": alg must be a scalar, got shape ", ToString(alg.shape()));
  }
  const int32_t algorithm = *alg.host<int32_t>();
  if (algorithm != kPhilox && algorithm != kAutoSelect) {
    return Unimplemented(op, ": algorithm ", algorithm,
                         " is not provided on the METAL device, Philox (1) is; place the op on "
                         "the CPU");
  }
  if (key.shape() != Shape{1} || counter.rank() != 1 || counter.dim(0) < 2) {
    return InvalidArgument(op, ": expected a key of shape [1] and a counter of shape [2], got ",
                           ToString(key.shape()), " and ", ToString(counter.shape()));
  }
  std::memcpy(p->key, key.host<uint64_t>(), sizeof p->key);
  std::memcpy(p->counter, counter.host<uint64_t>(), sizeof p->counter);
  Shape shape;
  RETURN_IF_ERROR(Indices(op, "shape", shape_tensor, &shape));
  for (const int64_t size : shape) {
    if (size < 0) {
      return InvalidArgument(op, ": shape ", ToString(shape), " has a negative dimension");
    }
  }
  RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, out));
  p->total = out->num_elements();
  return CheckGrid(op, "random numbers", (out->num_elements() + group - 1) / group);
}

Status Fill(KernelContext* ctx, const Tensor& out, int64_t group, const RandomParams& p) {
  if (p.total == 0) return Status();
  return Encode(ctx, [&](Encoder& encoder) {
    return encoder.Launch({"random_uniform", out.dtype()},
                          Grid((out.num_elements() + group - 1) / group), {{"out", out}, {"p", p}});
  });
}

class UniformOp {
 public:
  static constexpr char kOp[] = "StatelessRandomUniformV2";

  explicit UniformOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor out;
    RandomParams p = {};
    OP_REQUIRES_OK(ctx, Start(ctx, kOp, 4, &out, &p));
    OP_REQUIRES_OK(ctx, Fill(ctx, out, 4, p));
  }
};
REGISTER_METAL_KERNEL(UniformOp, .Types("dtype", {TF_FLOAT})
                                     .HostMemory("shape")
                                     .HostMemory("key")
                                     .HostMemory("counter")
                                     .HostMemory("alg"));

class UniformIntOp {
 public:
  static constexpr char kOp[] = "StatelessRandomUniformIntV2";

  explicit UniformIntOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor low, high, out;
    RETURN_IF_ERROR(ctx->Input(4, &low));
    RETURN_IF_ERROR(ctx->Input(5, &high));
    if (low.rank() != 0 || high.rank() != 0) {
      return InvalidArgument("StatelessRandomUniformIntV2: minval and maxval must be scalars, got ",
                             ToString(low.shape()), " and ", ToString(high.shape()));
    }
    const bool wide = low.dtype() == TF_INT64;
    const int64_t first = wide ? *low.host<int64_t>() : *low.host<int32_t>();
    const int64_t end = wide ? *high.host<int64_t>() : *high.host<int32_t>();
    RandomParams p = {};
    const int64_t group = wide ? 2 : 4;
    RETURN_IF_ERROR(Start(ctx, kOp, group, &out, &p));
    if (p.total == 0) return Status();
    if (first >= end) {
      return InvalidArgument("StatelessRandomUniformIntV2: Need minval < maxval, got ", first,
                             " >= ", end);
    }
    p.low = first;
    p.range = static_cast<uint64_t>(end) - static_cast<uint64_t>(first);
    return Fill(ctx, out, group, p);
  }
};
REGISTER_METAL_KERNEL(UniformIntOp, .Types("dtype", {TF_INT32, TF_INT64})
                                        .HostMemory("shape")
                                        .HostMemory("key")
                                        .HostMemory("counter")
                                        .HostMemory("alg")
                                        .HostMemory("minval")
                                        .HostMemory("maxval"));

}  // namespace
}  // namespace metal_ops
