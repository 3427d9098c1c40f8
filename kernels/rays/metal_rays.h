// Rays of samples on the Metal device: packed_info, which is HostMemory, checked and handed to
// shaders as kernels/rays/ray_layout.h describes it.

#ifndef METAL_OPS_KERNELS_RAYS_METAL_RAYS_H_
#define METAL_OPS_KERNELS_RAYS_METAL_RAYS_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "kernels/rays/packed_rays.h"
#include "kernels/rays/ray_layout.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {

class MetalRays {
 public:
  // Shapes have been checked; the contents of packed_info are checked here.
  Status Init(const char* op, const Tensor& packed_info, const Tensor& samples) {
    PackedInfo info = {nullptr, packed_info.dim(0), packed_info.dtype() == DType::kInt64};
    if (packed_info.num_elements() > 0) info.data = packed_info.host<char>();
    PackedRays rays;
    const std::string error = rays.Init(op, info, ArgShape(samples.shape()));
    if (!error.empty()) return InvalidArgument(error);
    RETURN_IF_ERROR(CheckGrid(op, "rays", rays.n_rays()));
    RETURN_IF_ERROR(CheckGrid(op, "samples a ray", rays.samples_per_ray()));
    covers_all_ = rays.covers_all();
    layout_.n_rays = static_cast<uint32_t>(rays.n_rays());
    layout_.samples_per_ray = static_cast<uint32_t>(rays.samples_per_ray());
    layout_.packed = rays.packed() ? 1 : 0;
    if (!rays.packed()) return Status();
    spans_.resize(rays.n_rays());
    for (int64_t r = 0; r < rays.n_rays(); ++r) {
      const RayRange ray = rays[r];
      RETURN_IF_ERROR(CheckGrid(op, "samples of a ray", ray.count));
      // An empty ray may say any start.
      spans_[r] = {ray.count == 0 ? 0 : static_cast<uint64_t>(ray.start),
                   static_cast<uint32_t>(ray.count), 0};
    }
    return Status();
  }

  int64_t n_rays() const { return layout_.n_rays; }
  Value spans() const { return HostArray(spans_.data(), static_cast<int64_t>(spans_.size())); }
  Value layout() const { return layout_; }

  // A kernel's one launch, a thread per ray, with these and "spans" and "layout" as arguments.
  // Results of samples of no ray, in `outputs`, become zero before.
  static Status Launch(MetalCall& call, int packed_info, int samples,
                       std::initializer_list<int> outputs, const Shader& shader,
                       std::vector<Argument> arguments, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    MetalRays rays;
    RETURN_IF_ERROR(rays.Init(call.op.name.c_str(), call.in(packed_info), call.in(samples)));
    arguments.push_back({"spans", rays.spans()});
    arguments.push_back({"layout", rays.layout()});
    return call.Encode([&](Encoder& encoder) -> Status {
      for (const int i : outputs) RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&call.out(i)}));
      return encoder.Launch(shader, Grid(rays.n_rays()), arguments, file, line);
    });
  }

  // Results of samples of no ray are zero. Before the dispatch that writes the others.
  Status ClearUncovered(Encoder& encoder, std::initializer_list<const Tensor*> outputs) const {
    if (covers_all_) return Status();
    for (const Tensor* output : outputs) {
      const int64_t n = output->num_elements();
      // Metal fills whole words; an odd number of halves is none.
      const bool words = output->byte_size() % 4 == 0;
      const uint64_t count = static_cast<uint64_t>(n);
      RETURN_IF_ERROR(words ? encoder.Fill(*output, 0)
                            : encoder.Launch("clear_halves", Grid::Flat(n),
                                             {{"values", *output}, {"n", count}}));
    }
    return Status();
  }

 private:
  RayLayout layout_ = {};
  std::vector<RaySpan> spans_;
  bool covers_all_ = true;
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RAYS_METAL_RAYS_H_
