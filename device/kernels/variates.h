// Gamma, Poisson and truncated normal numbers as TensorFlow's CPU kernels draw them, to the bit: the
// algorithms reject numbers, most of them in float64, which shaders do not have. So the host draws.

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

  // Always true. NaN for NaN and values far below 0.
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
  // `largest` is the largest number of the result's dtype.
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
    width_ = high_ - low_;
    more_ = low_ < T(0) ? T(0) : low_ * low_;
    alpha_ = (low_ + root) / T(2);
    return true;
  }

  // The result of one call of the generators: numbers before mean and deviation, bit i of `taken` for
  // each.
  struct Tried {
    T z[4];
    uint32_t taken;
  };

  // The numbers that such a call chooses from, and the generator's groups that it takes.
  int picks() const { return way_ == kExponential ? 2 : 4; }
  uint64_t groups() const { return way_ == kUniform ? 2 : 1; }

  Tried Try(PhiloxRandom* generator) const {
    namespace f = Eigen::numext;
    Tried tried = {};
    const auto take = [&tried](int i, T z, bool taken) {
      tried.z[i] = z;
      tried.taken |= static_cast<uint32_t>(taken) << i;
    };
    if (way_ == kNormal) {
      const auto a = NormalDistribution<PhiloxRandom, T>()(generator);
      for (int i = 0; i < 4; ++i) take(i, a[i], a[i] >= low_ && a[i] <= high_);
      return tried;
    }
    UniformDistribution<PhiloxRandom, T> uniform;
    const auto a = uniform(generator);
    if (way_ == kUniform) {
      const auto b = uniform(generator);
      for (int i = 0; i < 4; ++i) {
        const T z = a[i] * width_ + low_;
        take(i, z, b[i] <= f::exp((more_ - z * z) / T(2.0)));
      }
      return tried;
    }
    for (int i = 0; i < 2; ++i) {
      const T z = -f::log(a[2 * i]) / alpha_ + low_;
      const T x = low_ < alpha_ ? alpha_ - z : low_ - alpha_;
      take(i, z, a[2 * i + 1] <= f::exp(-x * x / T(2.0)) && z < high_);
    }
    return tried;
  }

  // n numbers, `stride` apart, of the calls that next(numbers that are done) gives. Null, or how they were looked
  // for in vain.
  template <typename Next>
  const char* Draw(const Next& next, int64_t n, int64_t stride, T* out) const {
    const int of_one = picks(), limit = way_ == kNormal ? kTries : kTries - 1;
    int tries = 0;
    for (int64_t done = 0; done < n;) {
      const Tried& tried = next(done);
      for (int i = 0; i < of_one && done < n; ++i) {
        if ((tried.taken >> i & 1) == 0) {
          if (tries >= limit) return kInVain[way_];
          ++tries;
          continue;
        }
        out[done++ * stride] = tried.z[i] * deviation_ + mean_;
        tries = 0;
      }
    }
    return nullptr;
  }

 private:
  enum { kNormal, kUniform, kExponential } way_ = kNormal;
  static constexpr const char* kInVain[] = {
      "randn rejection sampler failed to accept", "uniform rejection sampler failed to  accept",
      "exponential distribution rejection sampler failed to accept"};
  T mean_, deviation_, low_, high_, width_, more_, alpha_;
};

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_VARIATES_H_
