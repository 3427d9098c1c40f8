// Kernels that run the faulty shader: "Dawsn" is written with this library's C++ face, "Spence"
// as published samples are, with nothing but the TensorFlow and Metal APIs. Both ops have no kernel
// of their own on the device.

#import <Metal/Metal.h>

#include <dlfcn.h>

#include <string>

#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

class FaultyDawsn {
 public:
  static constexpr char kOp[] = "Dawsn";
  explicit FaultyDawsn(KernelConstruction*) {}
  void Compute(KernelContext* ctx) {
    Tensor x, y;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, x.shape(), &y));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch("past_the_end", Grid(x.num_elements()),
                                           {{"x", x}, {"y", y}});
                   }));
  }
};
REGISTER_METAL_KERNEL(FaultyDawsn, .Types("T", {TF_FLOAT}));

NSString* ShaderFile() {
  Dl_info info;
  dladdr(reinterpret_cast<const void*>(&ShaderFile), &info);
  NSString* self = [NSString stringWithUTF8String:info.dli_fname];
  return [[self stringByDeletingPathExtension] stringByAppendingPathExtension:@"metallib"];
}

void ComputeSpence(void*, TF_OpKernelContext* ctx) {
  TF_Status* status = TF_NewStatus();
  TF_Tensor* x = nullptr;
  TF_GetInput(ctx, 0, &x, status);
  const int64_t n = TF_TensorElementCount(x);
  TF_Tensor* y = TF_AllocateOutput(ctx, 0, TF_FLOAT, &n, 1, n * sizeof(float), status);
  id<TF_MetalStream> stream = (id<TF_MetalStream>)(void*)TF_GetStream(ctx, status);
  id<MTLBuffer> from = (id<MTLBuffer>)TF_TensorData(x), to = (id<MTLBuffer>)TF_TensorData(y);
  dispatch_sync([stream queue], ^{
    @autoreleasepool {
      id<MTLCommandBuffer> commands = [stream currentCommandBuffer];
      NSError* error = nil;
      id<MTLLibrary> library = [[commands device] newLibraryWithFile:ShaderFile() error:&error];
      id<MTLFunction> function = [library newFunctionWithName:@"past_the_end"];
      id<MTLComputePipelineState> pipeline =
          [[commands device] newComputePipelineStateWithFunction:function error:&error];
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
      [encoder setComputePipelineState:pipeline];
      [encoder setBuffer:from offset:0 atIndex:0];
      [encoder setBuffer:to offset:0 atIndex:1];
      [encoder dispatchThreads:MTLSizeMake(n, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
      [encoder endEncoding];
      [stream commit];
    }
  });
  TF_DeleteTensor(x);
  TF_DeleteTensor(y);
  TF_DeleteStatus(status);
}

const KernelRegistrar spence("Spence", {nullptr, ComputeSpence, nullptr},
                             KernelOptions().Types("T", {TF_FLOAT}));

}  // namespace
}  // namespace metal_ops
