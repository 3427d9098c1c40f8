// RayMarch: samples along rays, only where an occupancy grid says that there may be something; and
// PackOccupancy, which makes such a grid's bits.

#include <cmath>

#include "kernels/ray_march/ray_march_call.h"

namespace metal_ops {
namespace {

void CheckSteps(OpCall& call) {
  const float step = call.Float("step"), cone_angle = call.Float("cone_angle");
  call.shapes.Require(step > 0 && std::isfinite(step),
                      "step must be a length above 0, got " + ToText(step) + ".");
  call.shapes.Require(cone_angle >= 0 && cone_angle < 1,
                      "cone_angle must be in [0, 1), got " + ToText(cone_angle) +
                          ". 0 makes all steps equal; 1 / 256 is usual for large scenes.");
}

void CheckRayMarch(OpCall& call) {
  ArgShapes& shapes = call.shapes;
  const std::vector<ArgShape>& in = call.in_shapes;
  const std::string resolution = std::to_string(call.Int("resolution"));
  shapes.Expect("occupancy", in[2], {"levels", std::to_string(BytesPerLevel(call))},
                "A level has resolution^3 cells, 8 a byte: resolution is " + resolution + ".");
  const int64_t n_levels = call.Size("levels");
  shapes.Require(n_levels < 0 || (n_levels >= 1 && n_levels <= RAY_MARCH_MAX_LEVELS),
                 "occupancy must have between 1 and " + std::to_string(RAY_MARCH_MAX_LEVELS) +
                     " levels, got " + std::to_string(n_levels) + ".");
  // Else a coarse cell could reach into the finer level, and skipping it would skip that too.
  shapes.Require(n_levels <= 1 || call.Int("resolution") % 4 == 0,
                 "resolution must be a multiple of 4 with several levels, got " + resolution + ".");
  shapes.Expect("aabb", in[3], {"6"}, "It is (x_min, y_min, z_min, x_max, y_max, z_max).");
  for (int i = 4; i < 6; ++i) {
    if (in[i].rank() != 0) shapes.Expect(i == 4 ? "t_min" : "t_max", in[i], {"rays"});
  }
  if (!shapes.ok() || call.HostValue(3) == nullptr) return;
  float aabb[6];
  std::memcpy(aabb, call.HostValue(3), sizeof(aabb));
  for (int axis = 0; axis < 3; ++axis) {
    const float extent = aabb[axis + 3] - aabb[axis];
    shapes.Require(extent > 0 && std::isfinite(extent) && std::isfinite(1 / extent),
                   std::string("aabb must reach from a smaller to a larger ") + "xyz"[axis] +
                       ", got " + ToText(aabb[axis]) + " to " + ToText(aabb[axis + 3]) + ".");
  }
}

void ShapeOfBits(OpCall& call) {
  const int64_t n_cells = call.Size("cells");
  call.out_shapes[0] = ArgShape({call.Size("levels"), n_cells < 0 ? -1 : BytesOfCells(n_cells)});
}

DECLARE_OP("RayMarch")
    .Doc(R"doc(
Cuts rays into steps and keeps those whose middle lies in an occupied cell. Deterministic.

On the Metal device it waits once, to learn how many samples there are; packed_info is left in host memory, where the ops
that take it read it.)doc")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("resolution: int", "Cells along an edge; a multiple of 4 with several levels.",
          Between(1, RAY_MARCH_MAX_RESOLUTION))
    .Attr("step: float", "Shortest step, in t.")
    .Attr("cone_angle: float = 0.0", "Steps are max(step, cone_angle t) long.")
    .Attr("max_samples_per_ray: int = 1024", "A ray ends at this many samples.",
          Between(1, RAY_MARCH_MAX_STEPS))
    .Attr("stratified: bool = false", "Shifts the steps of each ray by a random part of one.")
    .Input("origins: float", "[rays, 3]", "[rays, 3].")
    .Input("directions: float", "[rays, 3]", "[rays, 3], of any length: t counts them.")
    .Input(
        "occupancy: uint8", "any",
        "Bits of the cells, [levels, ceil(resolution^3 / 8)]. Cell (i, j, k) along (x, y, z) is "
        "bit c % 8 of byte c / 8, c = (i resolution + j) resolution + k. Level l is 2^l times as "
        "large as aabb, around the same centre; a point belongs to the smallest level that "
        "holds it.")
    .Input("aabb: float", "any", "Box of level 0: (x_min, y_min, z_min, x_max, y_max, z_max).",
           Memory::kHost)
    .Input("t_min: float", "any", "Where rays begin, [rays] or a scalar; at 0 if below.")
    .Input("t_max: float", "any", "Where they end.")
    .Input("seed: int32", "[2]", "Two numbers that the jitter follows from.", Memory::kHost)
    .Output("t_starts: float", "[samples]", "Where each sample begins, [samples], ray after ray.")
    .Output("t_ends: float", "[samples]", "Where it ends.")
    .Output("ray_indices: Tindices", "[samples]", "The ray it belongs to.")
    .Output("packed_info: Tindices", "[rays, 2]",
            "First sample and number of samples of each ray, [rays, 2]. A ray with NaN or infinity "
            "has none.",
            Memory::kHost)
    .CheckAttrs(CheckSteps)
    .Check(CheckRayMarch);

DECLARE_OP("PackOccupancy")
    .Doc("Bits that say which densities are above a threshold: RayMarch's occupancy.")
    .Input("densities: float", "[levels, cells]", "[levels, cells].")
    .Input("threshold: float", "[]", "A scalar.")
    .Output("occupancy: uint8", "any",
            "[levels, ceil(cells / 8)], the first cell in the lowest bit.")
    .Check(ShapeOfBits);

}  // namespace
}  // namespace metal_ops
