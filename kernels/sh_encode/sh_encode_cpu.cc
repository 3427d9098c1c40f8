// ShEncode and ShEncodeGrad on the CPU. A point is done by one thread: deterministic.

#include "kernels/runtime/op.h"
#include "kernels/sh_encode/sh_encode_plan.h"
#include "kernels/sh_encode/sh_encode_simd.h"

namespace metal_ops {
namespace {

void ShEncode(CpuCall& call) {
  const int64_t n = call.Size("points"), degree = call.Int("degree");
  const ShEncodeParams params = MakeShEncodeParams(n, degree);
  call.ParallelFor(n, 2 * degree * degree, [&](int64_t begin, int64_t end) {
    EncodeSh(params, call.in<float>(0), begin, end, call.float_out(0));
  });
}
CPU_KERNEL("ShEncode", ShEncode);

void ShEncodeGrad(CpuCall& call) {
  const int64_t n = call.Size("points"), degree = call.Int("degree");
  const ShEncodeParams params = MakeShEncodeParams(n, degree);
  call.ParallelFor(n, 4 * degree * degree, [&](int64_t begin, int64_t end) {
    DifferentiateSh(params, call.floats(0), call.in<float>(1), begin, end, call.out<float>(0));
  });
}
CPU_KERNEL("ShEncodeGrad", ShEncodeGrad);

}  // namespace
}  // namespace metal_ops
