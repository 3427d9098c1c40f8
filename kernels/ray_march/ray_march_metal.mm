// RayMarch and PackOccupancy on the Metal device.

#include <limits>
#include <vector>

#include "kernels/common/encoder.h"
#include "kernels/common/metal_arg_shapes.h"
#include "kernels/common/registrar.h"
#include "kernels/ray_march/ray_march_checks.h"

namespace metal_ops {
namespace {

// The one op here that must wait: how many samples there are is known only after counting them.
// Then packed_info is known too; it stays in host memory, where the ops that take it want it.
class RayMarchOp {
 public:
  static constexpr char kOp[] = "RayMarch";

  explicit RayMarchOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("step", &attrs_.step));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("cone_angle", &attrs_.cone_angle));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("resolution", &attrs_.resolution));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("max_samples_per_ray", &attrs_.max_samples_per_ray));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("stratified", &stratified_));
    ArgShapes attrs(kOp);
    CheckRayMarchAttrs(&attrs, attrs_);
    OP_REQUIRES_OK(ctx, ToStatus(attrs));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor origins, directions, occupancy, aabb, t_min, t_max, seed;
    Tensor* const inputs[] = {&origins, &directions, &occupancy, &aabb, &t_min, &t_max, &seed};
    for (int i = 0; i < 7; ++i) RETURN_IF_ERROR(ctx->Input(i, inputs[i]));
    ArgShapes checked(kOp);
    CheckRayMarch(&checked, ShapesOf(origins, directions, occupancy, aabb, t_min, t_max, seed),
                  attrs_);
    RETURN_IF_ERROR(ToStatus(checked));
    CheckAabb(&checked, aabb.host<float>());
    RETURN_IF_ERROR(ToStatus(checked));
    const int64_t n_rays = checked.Size("rays");
    RETURN_IF_ERROR(CheckGrid(kOp, "rays", n_rays));
    const RayMarchParams params = MakeRayMarchParams(attrs_, stratified_, checked.Size("levels"),
                                                     aabb.host<float>(), seed.host<int32_t>());
    const RayMarchStrides strides = {static_cast<uint32_t>(t_min.rank()),
                                     static_cast<uint32_t>(t_max.rank())};

    ReadBack counts;
    RETURN_IF_ERROR(EncodeAndWait(ctx, [&](Encoder& encoder) -> Status {
      if (n_rays == 0) return Status();
      RETURN_IF_ERROR(encoder.Allocate(n_rays * sizeof(uint32_t), &counts));
      return encoder.Launch("ray_march_count", Grid(n_rays),
                            {{"origins", origins},
                             {"directions", directions},
                             {"occupancy", occupancy},
                             {"t_min", t_min},
                             {"t_max", t_max},
                             {"counts", counts},
                             {"params", params},
                             {"strides", strides}});
    }));
    std::vector<uint64_t> firsts(n_rays + 1, 0);
    for (int64_t r = 0; r < n_rays; ++r) {
      const uint32_t count = counts.data<uint32_t>()[r];
      RequireFewSteps(&checked, count == RAY_MARCH_TOO_LONG ? r : -1, attrs_.step);
      RETURN_IF_ERROR(ToStatus(checked));
      firsts[r + 1] = firsts[r] + count;
    }
    const int64_t n_samples = static_cast<int64_t>(firsts[n_rays]);
    const bool wide = ctx->output_dtype(2) == TF_INT64;
    RequireIndexable(
        &checked, n_samples,
        wide ? std::numeric_limits<int64_t>::max() : int64_t{std::numeric_limits<int32_t>::max()});
    RETURN_IF_ERROR(ToStatus(checked));

    Tensor t_starts, t_ends, ray_indices, packed_info;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {n_samples}, &t_starts));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, {n_samples}, &t_ends));
    RETURN_IF_ERROR(ctx->AllocateOutput(2, {n_samples}, &ray_indices));
    RETURN_IF_ERROR(ctx->AllocateOutput(3, {n_rays, 2}, &packed_info));
    if (wide) {
      Pack(firsts, packed_info.mutable_host<int64_t>());
    } else {
      Pack(firsts, packed_info.mutable_host<int32_t>());
    }
    if (n_samples == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"ray_march_write", ray_indices.dtype()}, Grid(n_rays),
                            {{"origins", origins},
                             {"directions", directions},
                             {"occupancy", occupancy},
                             {"t_min", t_min},
                             {"t_max", t_max},
                             {"firsts", HostArray(firsts.data(), n_rays + 1)},
                             {"t_starts", t_starts},
                             {"t_ends", t_ends},
                             {"ray_indices", ray_indices},
                             {"params", params},
                             {"strides", strides}});
    });
  }

  template <typename I>
  static void Pack(const std::vector<uint64_t>& firsts, I* packed_info) {
    for (size_t r = 0; r + 1 < firsts.size(); ++r) {
      packed_info[2 * r] = static_cast<I>(firsts[r]);
      packed_info[2 * r + 1] = static_cast<I>(firsts[r + 1] - firsts[r]);
    }
  }

  RayMarchAttrs attrs_;
  bool stratified_ = false;
};

class PackOccupancyOp {
 public:
  static constexpr char kOp[] = "PackOccupancy";

  explicit PackOccupancyOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor densities, threshold, occupancy;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &densities));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &threshold));
    ArgShapes shapes(kOp);
    CheckPackOccupancy(&shapes, ShapesOf(densities, threshold));
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    PackOccupancyParams params = {};
    params.n_levels = static_cast<uint64_t>(densities.dim(0));
    params.n_cells = static_cast<uint64_t>(densities.dim(1));
    const int64_t n_bytes = BytesOfCells(densities.dim(1));
    params.bytes_per_level = static_cast<uint64_t>(n_bytes);
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, {densities.dim(0), n_bytes}, &occupancy));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch("pack_occupancy", Grid::Flat(occupancy.num_elements()),
                                           {{"densities", densities},
                                            {"threshold", threshold},
                                            {"occupancy", occupancy},
                                            {"params", params}});
                   }));
  }
};

REGISTER_METAL_KERNEL(RayMarchOp, .Types("Tindices", {TF_INT32, TF_INT64})
                                      .HostMemory("aabb")
                                      .HostMemory("seed")
                                      .HostMemory("packed_info"));
REGISTER_METAL_KERNEL(PackOccupancyOp);

}  // namespace
}  // namespace metal_ops
