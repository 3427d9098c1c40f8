// RayMarch and PackOccupancy on the Metal device.

#include <vector>

#include "kernels/ray_march/ray_march_call.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

template <typename I>
void Pack(const std::vector<uint64_t>& firsts, I* packed_info) {
  for (size_t r = 0; r + 1 < firsts.size(); ++r) {
    packed_info[2 * r] = static_cast<I>(firsts[r]);
    packed_info[2 * r + 1] = static_cast<I>(firsts[r + 1] - firsts[r]);
  }
}

// The one op here that must wait: how many samples there are is known only after counting them.
// Then packed_info is known too; it stays in host memory, where the ops that take it want it.
Status RayMarch(MetalCall& call) {
  const Tensor &t_min = call.in(4), &t_max = call.in(5);
  const int64_t n_rays = call.Size("rays");
  RETURN_IF_ERROR(CheckGrid(call.op.name.c_str(), "rays", n_rays));
  const RayMarchParams params = MakeRayMarchParams(call);
  const RayMarchStrides strides = {static_cast<uint32_t>(t_min.rank()),
                                   static_cast<uint32_t>(t_max.rank())};
  std::vector<Argument> arguments = {{"origins", call.in(0)},   {"directions", call.in(1)},
                                     {"occupancy", call.in(2)}, {"t_min", t_min},
                                     {"t_max", t_max},          {"params", params},
                                     {"strides", strides}};

  ReadBack counts;
  const auto count = [&](Encoder& encoder) -> Status {
    if (n_rays == 0) return Status();
    RETURN_IF_ERROR(encoder.Allocate(n_rays * sizeof(uint32_t), &counts));
    std::vector<Argument> counting = arguments;
    counting.push_back({"counts", counts});
    return encoder.Launch("ray_march_count", Grid(n_rays), counting);
  };
  RETURN_IF_ERROR(call.Encode(count, /*wait=*/true));
  std::vector<uint64_t> firsts(n_rays + 1, 0);
  for (int64_t r = 0; r < n_rays; ++r) {
    const uint32_t count = counts.data<uint32_t>()[r];
    if (count == RAY_MARCH_TOO_LONG) {
      RequireFewSteps(call, r);
      return call.Checked();
    }
    firsts[r + 1] = firsts[r] + count;
  }
  const int64_t n_samples = static_cast<int64_t>(firsts[n_rays]);
  RequireIndexable(call, n_samples);
  RETURN_IF_ERROR(call.Checked());

  for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(call.Allocate(i, {n_samples}));
  if (call.Type("Tindices") == DType::kInt64) {
    Pack(firsts, call.outputs[3].mutable_host<int64_t>());
  } else {
    Pack(firsts, call.outputs[3].mutable_host<int32_t>());
  }
  if (n_samples == 0) return Status();
  arguments.push_back({"firsts", HostArray(firsts.data(), n_rays + 1)});
  arguments.push_back({"t_starts", call.out(0)});
  arguments.push_back({"t_ends", call.out(1)});
  arguments.push_back({"ray_indices", call.out(2)});
  return call.Launch({"ray_march_write", call.out(2).dtype()}, Grid(n_rays), arguments);
}
METAL_KERNEL("RayMarch", RayMarch);

Status PackOccupancy(MetalCall& call) {
  PackOccupancyParams params = {};
  params.n_levels = static_cast<uint64_t>(call.in(0).dim(0));
  params.n_cells = static_cast<uint64_t>(call.in(0).dim(1));
  params.bytes_per_level = static_cast<uint64_t>(call.out(0).dim(1));
  return call.Launch("pack_occupancy", Grid::Flat(call.out(0).num_elements()),
                     {{"densities", call.in(0)},
                      {"threshold", call.in(1)},
                      {"occupancy", call.out(0)},
                      {"params", params}});
}
METAL_KERNEL("PackOccupancy", PackOccupancy);

}  // namespace
}  // namespace metal_ops
