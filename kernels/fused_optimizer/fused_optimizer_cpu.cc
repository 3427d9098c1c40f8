// ResourceFusedAdam and ResourceFusedSgd on the CPU: one pass over memory, shared out on threads.

#include "kernels/fused_optimizer/fused_optimizer_call.h"
#include "kernels/fused_optimizer/fused_optimizer_simd.h"

namespace metal_ops {
namespace {

// Cycles that an element takes, roughly.
constexpr int64_t kCycles = 4;

template <typename Params, typename Arrays>
void ForRanges(CpuCall& call, const Params& params, const Arrays& arrays,
               void (*update)(const Params&, const Arrays&, const UpdateRange&)) {
  const int gradient = call.Index("gradient");
  const int64_t n = call.inputs[gradient].n_elements;
  if (n == 0) return;
  const ArgShape& shape = call.in_shapes[gradient];
  const bool skip = call.Bool("skip_zero_rows");
  const int64_t row = skip ? n / (shape.rank() == 0 ? 1 : shape.dims[0]) : 1;
  call.ParallelFor(n / row, kCycles * row, [&](int64_t begin, int64_t end) {
    update(params, arrays, {begin * row, end * row, row, skip});
  });
}

template <typename Real>
void Adam(CpuCall& call) {
  const bool amsgrad = call.Int("n_hats") == 1;
  const AdamArrays<Real> arrays = {ToFloatType(call.Type("T")),
                                   call.variable<void>(0),
                                   call.inputs[call.Index("gradient")].data,
                                   call.variable<Real>(1),
                                   call.variable<Real>(2),
                                   amsgrad ? call.variable<Real>(3) : nullptr};
  ForRanges(call, ToAdamParams<Real>(call), arrays, UpdateAdam);
}

void FusedAdam(CpuCall& call) {
  call.Type("T") == DType::kDouble ? Adam<double>(call) : Adam<float>(call);
}
CPU_KERNEL("ResourceFusedAdam", FusedAdam);

template <typename Real>
void Sgd(CpuCall& call) {
  const bool with_momentum = call.Int("n_momenta") == 1;
  const SgdArrays<Real> arrays = {
      ToFloatType(call.Type("T")), call.variable<void>(0), call.inputs[call.Index("gradient")].data,
      with_momentum ? call.variable<Real>(1) : nullptr, call.Bool("nesterov")};
  ForRanges(call, ToSgdParams<Real>(call), arrays, UpdateSgd);
}

void FusedSgd(CpuCall& call) {
  call.Type("T") == DType::kDouble ? Sgd<double>(call) : Sgd<float>(call);
}
CPU_KERNEL("ResourceFusedSgd", FusedSgd);

}  // namespace
}  // namespace metal_ops
