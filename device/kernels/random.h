// Where random numbers come from: a key and a counter, a seed, a generator that goes on, one in a variable.

#ifndef METAL_OPS_DEVICE_KERNELS_RANDOM_H_
#define METAL_OPS_DEVICE_KERNELS_RANDOM_H_

#include <cstring>
#include <mutex>
#include <random>

#include "device/kernels/layout.h"
#include "device/kernels/random_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/op_kernel.h"
#include "kernels/tensorflow/variable.h"
#include "tensorflow/core/lib/random/philox_random.h"

namespace metal_ops {

using tensorflow::random::PhiloxRandom;

// TensorFlow's Algorithm: Philox, and the device's choice, which is Philox, too.
inline constexpr int32_t kPhilox = 1, kAutoSelect = 3;

inline Status CheckAlgorithm(const char* op, int32_t algorithm) {
  if (algorithm == kPhilox || algorithm == kAutoSelect) return Status();
  return Unimplemented(op, ": algorithm ", algorithm,
                       " is not provided on the METAL device, Philox (1) is; place the op on the "
                       "CPU");
}

// The seed may not be spread evenly over its bits: it is scrambled once (TensorFlow's
// stateless_random_ops.cc). A few numbers: the host's work.
inline Status Scramble(const char* op, const Tensor& seed, RandomParams* p) {
  if (seed.shape() != Shape{2}) {
    return InvalidArgument(op, ": seed must have shape [2], not ", ToString(seed.shape()));
  }
  Shape seeds;
  RETURN_IF_ERROR(Indices(op, "seed", seed, &seeds));
  PhiloxRandom::Key key;
  key[0] = 0x3ec8f720;
  key[1] = 0x02461e29;
  PhiloxRandom::ResultType counter;
  for (int i = 0; i < 2; ++i) {
    counter[2 * i] = static_cast<uint32_t>(seeds[i]);
    counter[2 * i + 1] = static_cast<uint32_t>(static_cast<uint64_t>(seeds[i]) >> 32);
  }
  const auto mix = PhiloxRandom(counter, key)();
  p->key[0] = mix[0];
  p->key[1] = mix[1];
  p->counter[0] = p->counter[1] = 0;
  p->counter[2] = mix[2];
  p->counter[3] = mix[3];
  return Status();
}

// Inputs 1 to 3: key, counter, algorithm.
inline Status KeyInputs(KernelContext* ctx, const char* op, Tensor* key, Tensor* counter) {
  Tensor alg;
  RETURN_IF_ERROR(ctx->Input(1, key));
  RETURN_IF_ERROR(ctx->Input(2, counter));
  RETURN_IF_ERROR(ctx->Input(3, &alg));
  if (alg.rank() != 0) {
    return InvalidArgument(op, ": alg must be a scalar, got shape ", ToString(alg.shape()));
  }
  RETURN_IF_ERROR(CheckAlgorithm(op, *alg.host<int32_t>()));
  if (key->shape() == Shape{1} && counter->rank() == 1 && counter->dim(0) >= 2) return Status();
  return InvalidArgument(op, ": expected a key of shape [1] and a counter of shape [2], got ",
                         ToString(key->shape()), " and ", ToString(counter->shape()));
}

// Key and counter in the device's memory, where StatelessRandomGetKeyCounter leaves them: outside of functions they
// are copied there anyway, and would be waited for on their way back.
class FromKey {
 public:
  static constexpr int kShape = 0, kInputs = 4;  // with the shape

  Status Init(KernelConstruction*, const char*) { return Status(); }
  static Status Get(KernelContext*, const char*, int64_t, RandomParams*) { return Status(); }
};

// The same for numbers that the host draws.
class FromHostKey {
 public:
  static constexpr int kShape = 0, kInputs = 4;

  Status Init(KernelConstruction*, const char*) { return Status(); }
  static Status Get(KernelContext* ctx, const char* op, int64_t, RandomParams* p) {
    Tensor key, counter;
    RETURN_IF_ERROR(KeyInputs(ctx, op, &key, &counter));
    std::memcpy(p->key, key.host<uint64_t>(), sizeof p->key);
    std::memcpy(p->counter, counter.host<uint64_t>(), sizeof p->counter);
    return Status();
  }
};

// Input 1: the seed.
class FromSeed {
 public:
  static constexpr int kShape = 0, kInputs = 2;

  Status Init(KernelConstruction*, const char*) { return Status(); }
  static Status Get(KernelContext* ctx, const char* op, int64_t, RandomParams* p) {
    Tensor seed;
    RETURN_IF_ERROR(ctx->Input(1, &seed));
    return Scramble(op, seed, p);
  }
};

// A generator, which every call takes numbers of.
class FromState {
 public:
  static constexpr int kShape = 0, kInputs = 1;

  Status Init(KernelConstruction* ctx, const char* op) {
    int64_t seed, seed2;
    RETURN_IF_ERROR(ctx->GetAttr("seed", &seed));
    RETURN_IF_ERROR(ctx->GetAttr("seed2", &seed2));
    if (seed == 0 && seed2 == 0) {
      if (OpDeterminismRequired()) {
        return InvalidArgument(op, ": When determinism is enabled, random ops must have a seed ",
                               "specified; give one, or call tf.random.set_seed");
      }
      std::random_device device;
      seed = static_cast<int64_t>(uint64_t{device()} << 32 | device());
      seed2 = static_cast<int64_t>(uint64_t{device()} << 32 | device());
    }
    generator_ = PhiloxRandom(static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2));
    return Status();
  }
  // As many as TensorFlow takes for any distribution.
  Status Get(KernelContext*, const char*, int64_t total, RandomParams* p) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int i = 0; i < 4; ++i) p->counter[i] = generator_.counter()[i];
    for (int i = 0; i < 2; ++i) p->key[i] = generator_.key()[i];
    generator_.Skip(static_cast<uint64_t>(total) * 256);
    return Status();
  }
  // A generator of the next 4 * `groups` numbers.
  PhiloxRandom Take(uint64_t groups) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const PhiloxRandom taken = generator_;
    generator_.Skip(groups);
    return taken;
  }

 private:
  std::mutex mutex_;
  PhiloxRandom generator_;
};

// That `state` is one of Philox: a counter of two numbers and a key.
inline Status CheckState(const char* op, const Tensor& algorithm, const Tensor& state) {
  if (algorithm.num_elements() != 1) {
    return InvalidArgument(op, ": algorithm must be a scalar, got ", ToString(algorithm.shape()));
  }
  RETURN_IF_ERROR(CheckAlgorithm(op, algorithm.dtype() == TF_INT64
                                         ? static_cast<int32_t>(*algorithm.host<int64_t>())
                                         : *algorithm.host<int32_t>()));
  if (state.dtype() == TF_INT64 && state.rank() == 1 && state.dim(0) >= 3) return Status();
  return InvalidArgument(op, ": For the Philox algorithm, the size of state must be at least 3, ",
                         "of int64; got ", ToString(state.dtype()), " ", ToString(state.shape()));
}

// The generator in the variable that is input 0. The host waits for its old state.
class FromVariable {
 public:
  static constexpr int kShape = 2, kInputs = 3;

  Status Init(KernelConstruction*, const char*) { return Status(); }
  static Status Get(KernelContext* ctx, const char* op, int64_t total, RandomParams* p) {
    VariableLock lock(ctx, /*exclusive=*/true, {0});
    Tensor state, algorithm;
    ReadBack before;
    RETURN_IF_ERROR(lock.Get(0, &state));
    RETURN_IF_ERROR(ctx->Input(1, &algorithm));
    RETURN_IF_ERROR(CheckState(op, algorithm, state));
    const uint64_t count = static_cast<uint64_t>(total) * 256;
    const uint32_t read = 1;
    RETURN_IF_ERROR(EncodeAndWait(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(encoder.Allocate(3 * sizeof(uint64_t), &before));
      return encoder.Launch("random_skip", Grid(1),
                            {{"state", Value(state).Untyped()},
                             {"before", before},
                             {"count", count},
                             {"read", read}});
    }));
    std::memcpy(p->counter, before.data<uint64_t>(), sizeof p->counter);
    std::memcpy(p->key, before.data<uint64_t>() + 2, sizeof p->key);
    return Status();
  }
};

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_RANDOM_H_
