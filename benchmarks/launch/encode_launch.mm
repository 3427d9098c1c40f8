// EncodeLaunch: the time to encode one launch, from the inputs of a kernel to `commit`, with no
// more of TensorFlow around it than a kernel has. Built and called by benchmarks/launch_worker.py.

#include <time.h>

#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("EncodeLaunch")
    .Input("x: float")
    .Attr("launches: int")
    .Output("nanoseconds: double")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

namespace {
using namespace metal_ops;

struct TwiceParams {
  uint64_t n_elements;
  float scale;
  uint32_t reserved;
};

class EncodeLaunch {
 public:
  static constexpr char kOp[] = "EncodeLaunch";
  explicit EncodeLaunch(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("launches", &launches_));
  }

  void Compute(KernelContext* ctx) {
    Tensor x, y, nanoseconds;
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, {}, &nanoseconds));
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->AllocateTemp(TF_FLOAT, x.shape(), &y));
    OP_REQUIRES_OK(ctx, Once(ctx, y));  // compiles it
    // This thread's own time: others run earlier commits.
    const double begin = ThreadNanoseconds();
    for (int64_t i = 0; i < launches_; ++i) OP_REQUIRES_OK(ctx, Once(ctx, y));
    *nanoseconds.mutable_host<double>() =
        (ThreadNanoseconds() - begin) / static_cast<double>(launches_);
  }

 private:
  static double ThreadNanoseconds() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
  }

  static Status Once(KernelContext* ctx, const Tensor& y) {
    @autoreleasepool {
      Tensor x;
      RETURN_IF_ERROR(ctx->Input(0, &x));
      const TwiceParams params = {static_cast<uint64_t>(x.num_elements()), 2.0f, 0};
      return Encode(ctx, [&](Encoder& encoder) {
        return encoder.Launch({"twice", x.dtype()}, Grid(x.num_elements()),
                              {{"x", x}, {"y", y}, {"params", params}});
      });
    }
  }

  int64_t launches_ = 0;
};
REGISTER_METAL_KERNEL(EncodeLaunch, .HostMemory("nanoseconds"));

}  // namespace
