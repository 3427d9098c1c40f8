// RayMarch and PackOccupancy on the CPU.
//
// Rays are marched once, into one buffer a block of rays; then, with all counts known, the buffers
// are copied to where they belong. Nothing depends on the number of threads.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/ray_march/ray_march_checks.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;

constexpr int64_t kRaysPerBlock = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Uniform in [0, 1) from seed and ray: pcg3d of Jarzynski and Olano 2020, "Hash functions for GPU
// rendering", its upper 24 bits.
float Jitter(const uint32_t seed[2], uint32_t ray) {
  uint32_t x = seed[0] * 1664525u + 1013904223u;
  uint32_t y = seed[1] * 1664525u + 1013904223u;
  uint32_t z = ray * 1664525u + 1013904223u;
  x += y * z, y += z * x, z += x * y;
  x ^= x >> 16, y ^= y >> 16, z ^= z >> 16;
  x += y * z, y += z * x, z += x * y;
  return static_cast<float>(z >> 8) * 0x1p-24f;
}

// One ray in units of the box: u(t) = origin + t direction.
struct Ray {
  float origin[3];
  float direction[3];
  float per_direction[3];
};

// Whether the cell around u is occupied; if not, *t_exit is where the ray leaves it.
bool Occupied(const RayMarchParams& params, const uint8_t* bits, const Ray& ray, float t,
              float* t_exit) {
  float u[3], farthest = 0.0f;
  for (int a = 0; a < 3; ++a) {
    u[a] = ray.origin[a] + t * ray.direction[a];
    farthest = std::max(farthest, std::fabs(u[a] - 0.5f));
  }
  // The smallest l with farthest <= 2^(l-1), exactly.
  int level = 0;
  if (farthest > 0.5f) {
    const float significand = std::frexp(farthest, &level);
    level += significand > 0.5f ? 1 : 0;
    level = std::min(level, params.n_levels - 1);
  }
  const float size = std::ldexp(1.0f, level), per_size = 1.0f / size;
  const float resolution = static_cast<float>(params.resolution);
  int64_t index = 0;
  int cell[3];
  for (int a = 0; a < 3; ++a) {
    const float v = ((u[a] - 0.5f) * per_size + 0.5f) * resolution;
    // Clamped as float: a point on the upper face belongs to the last cell.
    cell[a] = static_cast<int>(std::min(std::max(v, 0.0f), resolution - 1.0f));
    index = index * params.resolution + cell[a];
  }
  const uint8_t byte = bits[level * static_cast<int64_t>(params.bytes_per_level) + index / 8];
  if ((byte >> (index % 8)) & 1) return true;
  float exit = kInfinity;
  for (int a = 0; a < 3; ++a) {
    if (ray.direction[a] == 0.0f) continue;
    const float face = static_cast<float>(cell[a] + (ray.direction[a] > 0.0f ? 1 : 0));
    const float u_face = (face / resolution - 0.5f) * size + 0.5f;
    exit = std::min(exit, (u_face - ray.origin[a]) * ray.per_direction[a]);
  }
  *t_exit = exit;
  return false;
}

// Appends the samples of a ray. False if there are too many steps to march.
bool March(const RayMarchParams& params, const uint8_t* bits, const float* origin,
           const float* direction, float t_min, float t_max, uint32_t ray_number,
           std::vector<float>* t_starts, std::vector<float>* t_ends) {
  Ray ray;
  float near = std::max(t_min, 0.0f), far = t_max;
  const float reach = std::ldexp(0.5f, params.n_levels - 1);  // of the largest level
  bool finite = t_min == t_min && t_max == t_max, moves = false;
  for (int a = 0; a < 3; ++a) {
    finite = finite && std::isfinite(origin[a]) && std::isfinite(direction[a]);
    ray.origin[a] = (origin[a] - params.aabb_min[a]) * params.per_extent[a];
    ray.direction[a] = direction[a] * params.per_extent[a];
    ray.per_direction[a] = 1.0f / ray.direction[a];
    if (ray.direction[a] == 0.0f) {
      if (std::fabs(ray.origin[a] - 0.5f) > reach) far = -kInfinity;
      continue;
    }
    moves = true;
    const float t0 = (0.5f - reach - ray.origin[a]) * ray.per_direction[a];
    const float t1 = (0.5f + reach - ray.origin[a]) * ray.per_direction[a];
    near = std::max(near, std::min(t0, t1));
    far = std::min(far, std::max(t0, t1));
  }
  if (!finite || !moves || !(near < far)) return true;

  const float step = params.step, cone = params.cone_angle;
  float start = near;
  if (params.stratified) start += Jitter(params.seed, ray_number) * std::max(step, cone * near);
  const size_t end = t_starts->size() + params.max_samples;
  float t_exit = 0.0f;
  if (cone == 0.0f) {
    if (!((far - start) / step < static_cast<float>(RAY_MARCH_MAX_STEPS))) return false;
    for (float n = 0.0f; t_starts->size() < end;) {
      const float middle = start + (n + 0.5f) * step;
      if (!(middle < far)) break;
      if (Occupied(params, bits, ray, middle, &t_exit)) {
        t_starts->push_back(start + n * step);
        t_ends->push_back(start + (n + 1.0f) * step);
        n += 1.0f;
      } else {
        // The last step at or before the exit: rounding may cost one look more, never a sample.
        n = std::max(n + 1.0f, std::floor((t_exit - start) / step - 0.5f));
      }
    }
    return true;
  }
  int64_t n_steps = 0;
  for (float t = start; t_starts->size() < end;) {
    float dt = std::max(step, cone * t);
    if (!(t + 0.5f * dt < far)) break;
    if (Occupied(params, bits, ray, t + 0.5f * dt, &t_exit)) {
      t_starts->push_back(t);
      t_ends->push_back(t + dt);
      t += dt;
      if (++n_steps > RAY_MARCH_MAX_STEPS) return false;
    } else {
      do {
        t += dt;
        dt = std::max(step, cone * t);
        if (++n_steps > RAY_MARCH_MAX_STEPS) return false;
      } while (t + 1.5f * dt < t_exit);
    }
  }
  return true;
}

template <typename I>
class RayMarchOp : public OpKernel {
 public:
  explicit RayMarchOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("step", &attrs_.step));
    OP_REQUIRES_OK(context, context->GetAttr("cone_angle", &attrs_.cone_angle));
    OP_REQUIRES_OK(context, context->GetAttr("resolution", &attrs_.resolution));
    OP_REQUIRES_OK(context, context->GetAttr("max_samples_per_ray", &attrs_.max_samples_per_ray));
    OP_REQUIRES_OK(context, context->GetAttr("stratified", &stratified_));
    ArgShapes attrs(type_string());
    CheckRayMarchAttrs(&attrs, attrs_);
    OP_REQUIRES_OK(context, ToStatus(attrs));
  }

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckRayMarch(&shapes, InputShapes(context), attrs_);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    float aabb[6];
    std::memcpy(aabb, context->input(3).data(), sizeof(aabb));
    CheckAabb(&shapes, aabb);
    OP_REQUIRES_OK(context, ToStatus(shapes));

    RayMarchParams params = {};
    for (int a = 0; a < 3; ++a) {
      params.aabb_min[a] = aabb[a];
      params.per_extent[a] = 1.0f / (aabb[a + 3] - aabb[a]);
    }
    params.step = attrs_.step;
    params.cone_angle = attrs_.cone_angle;
    params.resolution = static_cast<int32_t>(attrs_.resolution);
    params.n_levels = static_cast<int32_t>(shapes.Size("levels"));
    params.bytes_per_level = static_cast<uint32_t>(BytesPerLevel(attrs_.resolution));
    params.max_samples = static_cast<uint32_t>(attrs_.max_samples_per_ray);
    std::memcpy(params.seed, context->input(6).data(), sizeof(params.seed));
    params.stratified = stratified_ ? 1 : 0;

    const int64_t n_rays = shapes.Size("rays");
    const float* const origins = Floats(context->input(0));
    const float* const directions = Floats(context->input(1));
    const uint8_t* const bits = static_cast<const uint8_t*>(context->input(2).data());
    const float* const t_min = Floats(context->input(4));
    const float* const t_max = Floats(context->input(5));
    const int64_t min_stride = context->input(4).dims(), max_stride = context->input(5).dims();

    struct Block {
      std::vector<float> t_starts, t_ends;
    };
    const int64_t n_blocks = (n_rays + kRaysPerBlock - 1) / kRaysPerBlock;
    std::vector<Block> blocks(n_blocks);
    std::vector<int64_t> firsts(n_rays + 1, 0);  // at first, the number of samples
    std::atomic<int64_t> too_long{-1};
    ParallelFor(context, n_blocks, kRaysPerBlock * 5000, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        Block& block = blocks[b];
        for (int64_t r = b * kRaysPerBlock; r < std::min(n_rays, (b + 1) * kRaysPerBlock); ++r) {
          const size_t before = block.t_starts.size();
          if (!March(params, bits, origins + 3 * r, directions + 3 * r, t_min[r * min_stride],
                     t_max[r * max_stride], static_cast<uint32_t>(r), &block.t_starts,
                     &block.t_ends)) {
            too_long = r;
            return;
          }
          firsts[r] = static_cast<int64_t>(block.t_starts.size() - before);
        }
      }
    });
    OP_REQUIRES(
        context, too_long < 0,
        InvalidArgument(type_string(), ": step must cut a ray into at most ", RAY_MARCH_MAX_STEPS,
                        " steps, got more on ray ", too_long.load(), " with ", attrs_.step,
                        ". Use a larger step, a smaller aabb, or directions of length 1."));
    int64_t n_samples = 0;
    for (int64_t r = 0; r <= n_rays; ++r) {
      const int64_t count = firsts[r];
      firsts[r] = n_samples;
      n_samples += count;
    }
    OP_REQUIRES(context, n_samples <= std::numeric_limits<I>::max(),
                InvalidArgument(type_string(), ": Tindices must hold ", n_samples,
                                " samples, got int32. Use int64, or fewer rays at a time."));

    Tensor *starts, *ends, *ray_indices, *packed_info;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({n_samples}), &starts));
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({n_samples}), &ends));
    OP_REQUIRES_OK(context, context->allocate_output(2, TensorShape({n_samples}), &ray_indices));
    OP_REQUIRES_OK(context, context->allocate_output(3, TensorShape({n_rays, 2}), &packed_info));
    I* const indices = static_cast<I*>(ray_indices->data());
    I* const info = static_cast<I*>(packed_info->data());
    ParallelFor(context, n_blocks, kRaysPerBlock * 100, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first_ray = b * kRaysPerBlock;
        const int64_t first = firsts[first_ray];
        std::copy(blocks[b].t_starts.begin(), blocks[b].t_starts.end(),
                  static_cast<float*>(starts->data()) + first);
        std::copy(blocks[b].t_ends.begin(), blocks[b].t_ends.end(),
                  static_cast<float*>(ends->data()) + first);
        for (int64_t r = first_ray; r < std::min(n_rays, first_ray + kRaysPerBlock); ++r) {
          info[2 * r] = static_cast<I>(firsts[r]);
          info[2 * r + 1] = static_cast<I>(firsts[r + 1] - firsts[r]);
          std::fill(indices + firsts[r], indices + firsts[r + 1], static_cast<I>(r));
        }
      }
    });
  }

 private:
  static const float* Floats(const Tensor& tensor) {
    return static_cast<const float*>(tensor.data());
  }

  RayMarchAttrs attrs_;
  bool stratified_ = false;
};

class PackOccupancyOp : public OpKernel {
 public:
  explicit PackOccupancyOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    const std::vector<ArgShape> inputs = InputShapes(context);
    shapes.Expect("densities", inputs[0], {"levels", "cells"}).Expect("threshold", inputs[1], {});
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const int64_t n_levels = shapes.Size("levels"), n_cells = shapes.Size("cells");
    const int64_t n_bytes = (n_cells + 7) / 8;
    Tensor* bits = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({n_levels, n_bytes}), &bits));
    float threshold;
    std::memcpy(&threshold, context->input(1).data(), sizeof(threshold));
    const float* const densities = static_cast<const float*>(context->input(0).data());
    uint8_t* const out = static_cast<uint8_t*>(bits->data());
    ParallelFor(context, n_levels * n_bytes, 8, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t level = i / n_bytes, first = (i % n_bytes) * 8;
        const int64_t n = std::min<int64_t>(8, n_cells - first);
        uint8_t byte = 0;
        for (int64_t j = 0; j < n; ++j) {
          byte |= static_cast<uint8_t>(densities[level * n_cells + first + j] > threshold) << j;
        }
        out[i] = byte;
      }
    });
  }
};

REGISTER_KERNEL_BUILDER(
    Name("RayMarch").Device(tensorflow::DEVICE_CPU).TypeConstraint<int32_t>("Tindices"),
    RayMarchOp<int32_t>);
REGISTER_KERNEL_BUILDER(
    Name("RayMarch").Device(tensorflow::DEVICE_CPU).TypeConstraint<int64_t>("Tindices"),
    RayMarchOp<int64_t>);
REGISTER_KERNEL_BUILDER(Name("PackOccupancy").Device(tensorflow::DEVICE_CPU), PackOccupancyOp);

}  // namespace
}  // namespace metal_ops
