// Optimizers' steps on the CPU: one pass over memory, in vectors, shared out on threads.

#include <algorithm>

#include "kernels/runtime/op.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer_step/optimizer_step_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/optimizer_step/optimizer_step_formula.h"

// Elements that half-precision variables are worked on at a time, a multiple of every vector.
constexpr int64_t kPiece = 512;
constexpr int kMaxKept = 3;

// An input that is one number.
template <typename Real>
Real Number(const CpuCall& call, const char* name) {
  const int input = call.Index(name);
  if constexpr (sizeof(Real) == sizeof(double)) {
    return *call.in<double>(input);
  } else {
    float number;
    return *call.floats(input).Read(0, 1, &number);
  }
}

template <typename Real>
struct Adam {
  explicit Adam(const CpuCall& call)
      : alpha(Number<Real>(call, "alpha")),
        one_minus_beta1(Number<Real>(call, "one_minus_beta1")),
        one_minus_beta2(Number<Real>(call, "one_minus_beta2")),
        epsilon(Number<Real>(call, "epsilon")) {}

  template <class V>
  HWY_INLINE AdamStep<V> With() const {
    return {V(alpha), V(one_minus_beta1), V(one_minus_beta2), V(epsilon)};
  }
  Real alpha, one_minus_beta1, one_minus_beta2, epsilon;
};

template <typename Real>
struct Rmsprop {
  explicit Rmsprop(const CpuCall& call)
      : rate(Number<Real>(call, "lr")),
        rho(Number<Real>(call, "rho")),
        one_minus_rho(Number<Real>(call, "one_minus_rho")),
        epsilon(Number<Real>(call, "epsilon")),
        momentum(call.Int("n_momenta") == 1 ? Number<Real>(call, "momentum") : 0) {}

  template <class V>
  HWY_INLINE RmspropStep<V> With() const {
    return {V(rate), V(rho), V(one_minus_rho), V(epsilon), V(momentum)};
  }
  Real rate, rho, one_minus_rho, epsilon, momentum;
};

template <typename Real>
struct Adagrad {
  explicit Adagrad(const CpuCall& call)
      : rate(Number<Real>(call, "lr")), epsilon(Number<Real>(call, "epsilon")) {}

  template <class V>
  HWY_INLINE AdagradStep<V> With() const {
    return {V(rate), V(epsilon)};
  }
  Real rate, epsilon;
};

// The variable's state, in the order of StepState; null: absent.
template <typename T>
struct Kept {
  T* of[kMaxKept];
};

template <class V, typename Real, class Rule>
HWY_INLINE void StepAt(const Rule& rule, Real* x, const Real* g, const Kept<Real>& kept, int64_t i,
                       bool second, bool momentum) {
  const auto load = [&](int k) {
    return kept.of[k] != nullptr ? V::Load(kept.of[k] + i) : V(Real(0));
  };
  const StepState<V> at = {V::Load(x + i), load(0), load(1), load(2)};
  const StepState<V> next =
      optimizer_step(at, V::Load(g + i), rule.template With<V>(), second, momentum);
  next.x.Store(x + i);
  next.a.Store(kept.of[0] + i);
  if (kept.of[1] != nullptr) next.b.Store(kept.of[1] + i);
  if (kept.of[2] != nullptr) next.c.Store(kept.of[2] + i);
}

template <typename Real, class Rule>
HWY_INLINE void Step(const Rule& rule, Real* x, const Real* g, const Kept<Real>& kept, int64_t n,
                     bool second, bool momentum) {
  using V = Vector<hn::ScalableTag<Real>>;
  using One = Vector<hn::CappedTag<Real, 1>>;
  int64_t i = 0;
  for (; i + V::Lanes() <= n; i += V::Lanes()) {
    StepAt<V>(rule, x, g, kept, i, second, momentum);
  }
  for (; i < n; ++i) StepAt<One>(rule, x, g, kept, i, second, momentum);
}

// Elements [begin, end) in half precision, widened piece by piece.
template <class Rule>
void StepHalves(const Rule& rule, FloatType type, char* x, const char* g, const Kept<char>& kept,
                int64_t begin, int64_t end, bool second, bool momentum) {
  float x_piece[kPiece], g_piece[kPiece], kept_piece[kMaxKept][kPiece];
  Kept<float> wide = {};
  for (int k = 0; k < kMaxKept; ++k) wide.of[k] = kept.of[k] != nullptr ? kept_piece[k] : nullptr;
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t n = std::min(kPiece, end - at);
    WidenFloats(type, g + 2 * at, n, g_piece);
    WidenFloats(type, x + 2 * at, n, x_piece);
    for (int k = 0; k < kMaxKept; ++k) {
      if (wide.of[k] != nullptr) WidenFloats(type, kept.of[k] + 2 * at, n, wide.of[k]);
    }
    Step(rule, x_piece, g_piece, wide, n, second, momentum);
    NarrowFloats(type, x_piece, n, x + 2 * at);
    for (int k = 0; k < kMaxKept; ++k) {
      if (wide.of[k] != nullptr) NarrowFloats(type, wide.of[k], n, kept.of[k] + 2 * at);
    }
  }
}

// `kept` has the inputs' numbers, -1 for none.
template <typename Real, class Rule>
void Run(CpuCall& call, const Rule& rule, const int (&kept)[kMaxKept], bool second, bool momentum) {
  constexpr int64_t kCycles = 8;
  const int gradient = call.Index("gradient");
  const FloatType type = ToFloatType(call.Type("T"));
  call.ParallelFor(call.inputs[gradient].n_elements, kCycles, [&](int64_t begin, int64_t end) {
    if (type == FloatType::kFloat) {  // or double
      Kept<Real> from = {};
      for (int k = 0; k < kMaxKept; ++k) {
        if (kept[k] >= 0) from.of[k] = call.variable<Real>(kept[k]) + begin;
      }
      Step(rule, call.variable<Real>(0) + begin, call.in<Real>(gradient) + begin, from, end - begin,
           second, momentum);
    } else if constexpr (sizeof(Real) == sizeof(float)) {
      Kept<char> from = {};
      for (int k = 0; k < kMaxKept; ++k) {
        if (kept[k] >= 0) from.of[k] = call.variable<char>(kept[k]);
      }
      StepHalves(rule, type, call.variable<char>(0), call.in<char>(gradient), from, begin, end,
                 second, momentum);
    }
  });
}

template <template <typename> class Rule>
void RunOf(CpuCall& call, const int (&kept)[kMaxKept], bool second, bool momentum) {
  if (call.Type("T") == DType::kDouble) {
    Run<double>(call, Rule<double>(call), kept, second, momentum);
  } else {
    Run<float>(call, Rule<float>(call), kept, second, momentum);
  }
}

void StepAdam(CpuCall& call) {
  const bool amsgrad = call.Int("n_hats") == 1;
  RunOf<Adam>(call, {1, 2, amsgrad ? 3 : -1}, amsgrad, false);
}

void StepRmsprop(CpuCall& call) {
  const bool centered = call.Int("n_averages") == 1, momentum = call.Int("n_momenta") == 1;
  RunOf<Rmsprop>(call, {1, centered ? 2 : -1, momentum ? 2 + centered : -1}, centered, momentum);
}

void StepAdagrad(CpuCall& call) { RunOf<Adagrad>(call, {1, -1, -1}, false, false); }

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("ResourceAdamStep", StepAdam);
SIMD_KERNEL("ResourceRmspropStep", StepRmsprop);
SIMD_KERNEL("ResourceAdagradStep", StepAdagrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
