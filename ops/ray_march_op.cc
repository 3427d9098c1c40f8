// RayMarch: samples along rays, only where an occupancy grid says that there may be something; and
// PackOccupancy, which makes such a grid's bits.

#include <vector>

#include "kernels/common/tf_arg_shapes.h"
#include "kernels/ray_march/ray_march_checks.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;

Status RayMarchShape(InferenceContext* c) {
  RayMarchAttrs attrs;
  TF_RETURN_IF_ERROR(c->GetAttr("step", &attrs.step));
  TF_RETURN_IF_ERROR(c->GetAttr("cone_angle", &attrs.cone_angle));
  TF_RETURN_IF_ERROR(c->GetAttr("resolution", &attrs.resolution));
  TF_RETURN_IF_ERROR(c->GetAttr("max_samples_per_ray", &attrs.max_samples_per_ray));
  ArgShapes shapes("RayMarch");
  CheckRayMarchAttrs(&shapes, attrs);
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  CheckRayMarch(&shapes, InputShapes(c), attrs);
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  const auto samples = c->Vector(c->UnknownDim());
  for (int i = 0; i < 3; ++i) c->set_output(i, samples);
  c->set_output(3, ToShape(c, {shapes.Size("rays"), 2}));
  return tensorflow::OkStatus();
}

Status PackOccupancyShape(InferenceContext* c) {
  ArgShapes shapes("PackOccupancy");
  CheckPackOccupancy(&shapes, InputShapes(c));
  const int64_t n_cells = shapes.Size("cells");
  c->set_output(0, ToShape(c, {shapes.Size("levels"), n_cells < 0 ? -1 : BytesOfCells(n_cells)}));
  return ToStatus(shapes);
}

REGISTER_OP("RayMarch")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("resolution: int")
    .Attr("step: float")
    .Attr("cone_angle: float = 0.0")
    .Attr("max_samples_per_ray: int = 1024")
    .Attr("stratified: bool = false")
    .Input("origins: float")
    .Input("directions: float")
    .Input("occupancy: uint8")
    .Input("aabb: float")
    .Input("t_min: float")
    .Input("t_max: float")
    .Input("seed: int32")
    .Output("t_starts: float")
    .Output("t_ends: float")
    .Output("ray_indices: Tindices")
    .Output("packed_info: Tindices")
    .SetShapeFn(RayMarchShape)
    .Doc(R"doc(
Cuts rays into steps and keeps those whose middle lies in an occupied cell. Deterministic.

On the Metal device it waits once, to learn how many samples there are; packed_info is left in host memory, where the ops
that take it read it.

origins: [rays, 3].
directions: [rays, 3], of any length: t counts them.
occupancy: Bits of the cells, [levels, ceil(resolution^3 / 8)]. Cell (i, j, k) along (x, y, z) is bit c % 8 of byte c / 8,
  c = (i resolution + j) resolution + k. Level l is 2^l times as large as aabb, around the same centre; a point belongs
  to the smallest level that holds it.
aabb: Box of level 0: (x_min, y_min, z_min, x_max, y_max, z_max).
t_min: Where rays begin, [rays] or a scalar; at 0 if below.
t_max: Where they end.
seed: Two numbers that the jitter follows from.
resolution: Cells along an edge; a multiple of 4 with several levels.
step: Shortest step, in t.
cone_angle: Steps are max(step, cone_angle t) long.
max_samples_per_ray: A ray ends at this many samples.
stratified: Shifts the steps of each ray by a random part of one.
t_starts: Where each sample begins, [samples], ray after ray.
t_ends: Where it ends.
ray_indices: The ray it belongs to.
packed_info: First sample and number of samples of each ray, [rays, 2]. A ray with NaN or infinity has none.
)doc");

REGISTER_OP("PackOccupancy")
    .Input("densities: float")
    .Input("threshold: float")
    .Output("occupancy: uint8")
    .SetShapeFn(PackOccupancyShape)
    .Doc(R"doc(
Bits that say which densities are above a threshold: what RayMarch takes as occupancy.

densities: [levels, cells].
threshold: A scalar.
occupancy: [levels, ceil(cells / 8)], the first cell in the lowest bit.
)doc");

}  // namespace
}  // namespace metal_ops
