// Samples packed ray after ray, as nerfacc packs them: packed_info[r] = (first sample, number of
// samples). Also the dense form, [rays, samples per ray], where packed_info is empty. For the
// kernels of every device: packed_info lies in host memory.

#ifndef METAL_OPS_KERNELS_RAYS_PACKED_RAYS_H_
#define METAL_OPS_KERNELS_RAYS_PACKED_RAYS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "kernels/runtime/arg_shapes.h"

namespace metal_ops {

struct RayRange {
  int64_t start;
  int64_t count;
};

// packed_info's memory; `wide`: int64, else int32.
struct PackedInfo {
  const void* data;
  int64_t n_rays;
  bool wide;
};

class PackedRays {
 public:
  // Checks the contents of packed_info; shapes have been checked. The message is "" or a sentence.
  std::string Init(const std::string& op, const PackedInfo& packed_info, const ArgShape& samples) {
    if (samples.rank() == 2) {
      n_rays_ = samples.dims[0];
      per_ray_ = samples.dims[1];
      n_samples_ = n_rays_ * per_ray_;
      covers_all_ = true;
      return "";
    }
    n_samples_ = samples.dims[0];
    data_ = packed_info.data;
    n_rays_ = packed_info.n_rays;
    wide_ = packed_info.wide;
    packed_ = true;
    int64_t end = 0, covered = 0;
    for (int64_t r = 0; r < n_rays_; ++r) {
      const RayRange ray = (*this)[r];
      if (ray.count == 0) continue;
      if (ray.count < 0 || ray.start < 0 || ray.start > n_samples_ ||
          ray.count > n_samples_ - ray.start) {
        return op + ": packed_info[" + std::to_string(r) + "] must be (start, count) within the " +
               std::to_string(n_samples_) + " samples, got (" + std::to_string(ray.start) + ", " +
               std::to_string(ray.count) + ").";
      }
      if (ray.start < end) {
        return op + ": packed_info[" + std::to_string(r) + "] must start at sample " +
               std::to_string(end) + " or later, where the rays before it end, got " +
               std::to_string(ray.start) + ". Sort the rays by their first sample.";
      }
      end = ray.start + ray.count;
      covered += ray.count;
    }
    covers_all_ = covered == n_samples_;
    return "";
  }

  int64_t n_rays() const { return n_rays_; }
  int64_t n_samples() const { return n_samples_; }
  bool packed() const { return packed_; }
  // For dense samples.
  int64_t samples_per_ray() const { return per_ray_; }
  // Whether every sample belongs to a ray. Results of those that do not are zero.
  bool covers_all() const { return covers_all_; }

  RayRange operator[](int64_t r) const {
    if (!packed_) return {r * per_ray_, per_ray_};
    // Copied, as a slice of a tensor may lie anywhere.
    if (wide_) {
      int64_t pair[2];
      std::memcpy(pair, static_cast<const char*>(data_) + r * sizeof(pair), sizeof(pair));
      return {pair[0], pair[1]};
    }
    int32_t pair[2];
    std::memcpy(pair, static_cast<const char*>(data_) + r * sizeof(pair), sizeof(pair));
    return {pair[0], pair[1]};
  }

  // Cost of one ray, for ParallelFor.
  int64_t Cycles(int64_t per_sample) const {
    return 100 + per_sample * n_samples_ / std::max<int64_t>(1, n_rays_);
  }

 private:
  const void* data_ = nullptr;
  bool wide_ = false;
  bool packed_ = false;
  int64_t n_rays_ = 0;
  int64_t n_samples_ = 0;
  int64_t per_ray_ = 0;
  bool covers_all_ = false;
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RAYS_PACKED_RAYS_H_
