// Gamma, Poisson and truncated normal numbers as TensorFlow's CPU kernels draw them, to the bit: the
// algorithms reject numbers, most of them in float64, which shaders have not. So the host draws.

#ifndef METAL_OPS_DEVICE_KERNELS_VARIATES_H_
#define METAL_OPS_DEVICE_KERNELS_VARIATES_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "tensorflow/core/lib/random/random_distributions.h"

namespace metal_ops {

using tensorflow::random::NormalDistribution;
using tensorflow::random::PhiloxRandom;
using tensorflow::random::UniformDistribution;

// Groups of four 32-bit numbers that each number of a gamma or Poisson distribution has to itself.
inline constexpr uint64_t kGroupsOfOne = 256;

// Numbers of a distribution one by one: the last of those that one call makes is the first.
template <typename Distribution>
class Backwards {
 public:
  double Next(PhiloxRandom* generator) {
    if (left_ == 0) {
      numbers_ = Distribution()(generator);
      left_ = Distribution::kResultElementCount;
    }
    return numbers_[--left_];
  }

 private:
  typename Distribution::ResultType numbers_;
  int left_ = 0;
};
using Uniforms = Backwards<UniformDistribution<PhiloxRandom, double>>;
using Normals = Backwards<NormalDistribution<PhiloxRandom, double>>;

// Marsaglia and Tsang 2000, "A simple method for generating gamma variables".
class Gamma {
 public:
  explicit Gamma(double alpha)
      : alpha_(alpha),
        d_(alpha + (alpha < 1.0 ? 2.0 / 3 : -1.0 / 3)),
        c_(1.0 / 3 / std::sqrt(d_)) {}

  // Always true. NaN for NaN and what is far below 0.
  bool Draw(PhiloxRandom generator, double* out) const {
    Uniforms uniforms;
    Normals normals;
    if (alpha_ == 1.0) {
      *out = -std::log1p(-uniforms.Next(&generator));
      return true;
    }
    *out = std::numeric_limits<double>::quiet_NaN();
    if (!(d_ >= 0.0)) return true;
    while (true) {
      const double x = normals.Next(&generator);
      double v = 1.0 + c_ * x;
      if (v <= 0.0) continue;
      v = v * v * v;
      const double u = uniforms.Next(&generator);
      if (!(u < 1.0 - 0.0331 * (x * x) * (x * x)) &&
          !(std::log(u) < 0.5 * x * x + d_ * (1.0 - v + std::log(v)))) {
        continue;
      }
      *out = d_ * v;
      if (alpha_ < 1.0) *out *= std::pow(uniforms.Next(&generator), 1.0 / alpha_);
      return true;
    }
  }

 private:
  double alpha_, d_, c_;
};

// Small rates: Knuth, The Art of Computer Programming 3.4.1. Others: Hoermann 1993, "The transformed
// rejection method for generating Poisson random variables".
class Poisson {
 public:
  // `largest` is what the result's dtype can hold.
  Poisson(double rate, double largest)
      : rate_(rate),
        largest_(largest),
        none_(std::exp(-rate)),
        log_rate_(std::log(rate)),
        b_(0.931 + 2.53 * std::sqrt(rate)),
        a_(-0.059 + 0.02483 * b_),
        inverse_alpha_(1.1239 + 1.1328 / (b_ - 3.4)) {}

  // False if there is none that the dtype can hold, where TensorFlow's CPU kernel looks for ever.
  bool Draw(PhiloxRandom generator, double* out) const {
    Uniforms uniforms;
    if (rate_ < 10.0) {
      double product = 1.0, count = 0.0;
      while (true) {
        product = product * uniforms.Next(&generator);
        if (product <= none_) break;
        count += 1.0;
      }
      *out = count;
      return true;
    }
    if (std::isinf(rate_)) {
      *out = rate_;
      return true;
    }
    constexpr int kTries = 10000;  // at least three of four are the last one
    for (int i = 0; i < kTries; ++i) {
      const double u = uniforms.Next(&generator) - 0.5, v = uniforms.Next(&generator);
      const double from_end = 0.5 - std::abs(u);
      const double k = std::floor((2.0 * a_ / from_end + b_) * u + rate_ + 0.43);
      *out = k;
      if (k > largest_) continue;
      if (from_end >= 0.07 && v <= 0.9277 - 3.6224 / (b_ - 2.0)) return true;
      if (k < 0.0 || (from_end < 0.013 && v > from_end)) continue;
      const double s = std::log(v * inverse_alpha_ / (a_ / (from_end * from_end) + b_));
      const double t = -rate_ + k * log_rate_ - std::lgamma(k + 1.0);
      if (s <= t) return true;
    }
    return false;
  }

 private:
  double rate_, largest_, none_, log_rate_, b_, a_, inverse_alpha_;
};

// Normal numbers between two bounds, in T's own rounding: float or Eigen::half. Robert 1995, "Simulation
// of truncated normal variables".
template <typename T>
class BetweenBounds {
 public:
  static constexpr int kTries = 1000;

  // False if the parameters are none of a distribution.
  bool Set(T mean, T deviation, T low, T high) {
    namespace n = Eigen::numext;
    if (!(deviation > T(0) && low < high && (n::isfinite(low) || n::isfinite(high)))) return false;
    // The bound that is nearer to the mean is the lower one.
    if ((n::isinf(low) && low < T(0)) || high < mean) {
      std::swap(low, high);
      deviation = -deviation;
    }
    mean_ = mean;
    deviation_ = deviation;
    low_ = (low - mean) / deviation;
    high_ = (high - mean) / deviation;
    const T root = n::sqrt((low_ * low_) + T(4));
    const T limit = T(2) * n::exp(T(0.5) + (low_ * (low_ - root)) / T(4)) / (low_ + root);
    const T enough = T(1.3);
    if ((low_ < -enough && high_ >= T(0)) || (high_ > enough && low_ <= T(0))) {
      way_ = kNormal;
    } else {
      way_ = high_ - low_ < limit ? kUniform : kExponential;
    }
    return true;
  }

  // n numbers, `stride` apart. Null, or how they were looked for in vain.
  const char* Draw(PhiloxRandom* generator, int64_t n, int64_t stride, T* out) const {
    namespace f = Eigen::numext;
    UniformDistribution<PhiloxRandom, T> uniform;
    NormalDistribution<PhiloxRandom, T> normal;
    const T width = high_ - low_, more = low_ < T(0) ? T(0) : low_ * low_;
    const T alpha = (low_ + f::sqrt((low_ * low_) + T(4))) / T(2);
    int tries = 0;
    for (int64_t done = 0; done < n;) {
      const auto a = way_ == kNormal ? normal(generator) : uniform(generator);
      const auto b = way_ == kUniform ? uniform(generator) : a;
      for (int i = 0; i < 4 && done < n; ++i) {
        T z = a[i];
        bool taken;
        if (way_ == kNormal) {
          taken = z >= low_ && z <= high_;
          if (!taken && tries >= kTries) return "randn rejection sampler failed to accept";
        } else if (way_ == kUniform) {
          z = z * width + low_;
          taken = b[i] <= f::exp((more - z * z) / T(2.0));
          if (!taken && tries + 1 >= kTries) return "uniform rejection sampler failed to  accept";
        } else {
          z = -f::log(z) / alpha + low_;
          const T x = low_ < alpha ? alpha - z : low_ - alpha;
          taken = a[++i] <= f::exp(-x * x / T(2.0)) && z < high_;
          if (!taken && tries + 1 >= kTries) {
            return "exponential distribution rejection sampler failed to accept";
          }
        }
        if (!taken) {
          ++tries;
          continue;
        }
        out[done++ * stride] = z * deviation_ + mean_;
        tries = 0;
      }
    }
    return nullptr;
  }

 private:
  enum { kNormal, kUniform, kExponential } way_ = kNormal;
  T mean_, deviation_, low_, high_;
};

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_VARIATES_H_
