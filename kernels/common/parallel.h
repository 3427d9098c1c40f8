// Sharing a loop out on TensorFlow's intra-op pool.

#ifndef METAL_OPS_KERNELS_COMMON_PARALLEL_H_
#define METAL_OPS_KERNELS_COMMON_PARALLEL_H_

#include <cstdint>
#include <functional>

#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {

// Calls `work(begin, end)` on ranges that together are [0, n), on as many threads as are worth it.
// `cycles` is the cost of one of the n; ranges are several a thread, so that uneven ones level out.
inline void ParallelFor(tensorflow::OpKernelContext* context, int64_t n, int64_t cycles,
                        const std::function<void(int64_t, int64_t)>& work) {
  if (n == 0) return;
  context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(n, cycles, work);
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_COMMON_PARALLEL_H_
