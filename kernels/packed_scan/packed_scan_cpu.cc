// PackedScan, PackedProdGrad and PackRayIndices on the CPU.
//
// A ray is done by one thread, so results do not depend on the number of threads. Sums and products
// run in double and are rounded once.

#include "kernels/packed_scan/pack_ray_indices.h"
#include "kernels/packed_scan/packed_scan_simd.h"
#include "kernels/rays/call_rays.h"

namespace metal_ops {
namespace {

// Calls `work(rays, first ray, last ray + 1)` for several rays at a time, at this many cycles a
// sample, roughly.
template <typename Work>
void ForRays(CpuCall& call, int64_t cycles, const Work& work) {
  const int packed_info = static_cast<int>(call.inputs.size()) - 1;
  PackedRays rays;
  if (!InitRays(call, packed_info, packed_info - 1, &rays)) return;
  ClearUncovered(call, rays, 0);
  if (rays.n_samples() == 0) return;  // however many rays there are
  call.ParallelFor(rays.n_rays(), rays.Cycles(cycles),
                   [&](int64_t begin, int64_t end) { work(rays, begin, end); });
}

void PackedScan(CpuCall& call) {
  const ScanKind kind = {call.Text("reduction") == "sum", call.Bool("exclusive"),
                         call.Bool("reverse")};
  ForRays(call, 2, [&](const PackedRays& rays, int64_t begin, int64_t end) {
    ScanRays(kind, rays, begin, end, call.floats(0), call.float_out(0));
  });
}
CPU_KERNEL("PackedScan", PackedScan);

void PackedProdGrad(CpuCall& call) {
  const ScanKind kind = {false, call.Bool("exclusive"), call.Bool("reverse")};
  ForRays(call, 5, [&](const PackedRays& rays, int64_t begin, int64_t end) {
    ProdGradRays(kind, rays, begin, end, call.floats(0), call.floats(1), call.float_out(0));
  });
}
CPU_KERNEL("PackedProdGrad", PackedProdGrad);

void PackRayIndices(CpuCall& call) {
  const int64_t n_rays = call.out_shapes[0].dims[0];
  if (call.inputs[0].type == DType::kInt64) {
    PackRayIndices(call, call.in<int64_t>(0), n_rays, call.out<int64_t>(0));
  } else {
    PackRayIndices(call, call.in<int32_t>(0), n_rays, call.out<int32_t>(0));
  }
}
CPU_KERNEL("PackRayIndices", PackRayIndices);

}  // namespace
}  // namespace metal_ops
