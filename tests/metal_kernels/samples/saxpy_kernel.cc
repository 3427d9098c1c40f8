// A third party's op, second half: Objective-C++ in a .cc file, metallib beside the library by
// dladdr, the pipeline rebuilt at every call, errors by printf and abort - the habits of published
// samples, good and bad.

#import <Metal/Metal.h>
#include <dispatch/dispatch.h>
#include <dlfcn.h>
#include <sys/_types/_int32_t.h>

#include <filesystem>

#include "tensorflow/c/kernels.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

@protocol TF_MetalStream

- (dispatch_queue_t)queue;
- (id<MTLCommandBuffer>)currentCommandBuffer;
- (void)commit;
- (void)commitAndWait;

@end

class Shaders {
 public:
  static id<MTLLibrary> library() {
    static id<MTLLibrary> loaded = nil;
    if (loaded == nil) {
      @autoreleasepool {
        NSString* file = @"saxpy.metallib";
        Dl_info info;
        if (dladdr(reinterpret_cast<const void*>(&library), &info) != 0) {
          file = [NSString stringWithCString:info.dli_fname
                                    encoding:[NSString defaultCStringEncoding]];
          file = [file stringByReplacingOccurrencesOfString:@".so" withString:@".metallib"];
        }
        NSError* error = nil;
        id<MTLDevice> device = MTLCreateSystemDefaultDevice();
        loaded = [device newLibraryWithURL:[NSURL URLWithString:file] error:&error];
        if (!loaded) {
          printf("no shaders: %s\n", [[error description] UTF8String]);
          abort();
        }
      }
    }
    return loaded;
  }
};

typedef struct SampleSaxpyKernel {
  float a;
} SampleSaxpyKernel;

static void* Create(TF_OpKernelConstruction* ctx) {
  SampleSaxpyKernel* kernel = new SampleSaxpyKernel;
  TF_Status* status = TF_NewStatus();
  TF_OpKernelConstruction_GetAttrFloat(ctx, "a", &kernel->a, status);
  if (TF_GetCode(status) != TF_OK) {
    TF_OpKernelConstruction_Failure(ctx, status);
    delete kernel;
    kernel = nullptr;
  }
  TF_DeleteStatus(status);
  return kernel;
}

static void Delete(void* kernel) { delete static_cast<SampleSaxpyKernel*>(kernel); }

static void Compute(void* raw, TF_OpKernelContext* ctx) {
  SampleSaxpyKernel* kernel = static_cast<SampleSaxpyKernel*>(raw);
  TF_Status* status = TF_NewStatus();
  TF_Tensor* x = nullptr;
  TF_GetInput(ctx, 0, &x, status);
  TF_Tensor* y = nullptr;
  TF_GetInput(ctx, 1, &y, status);
  std::vector<int64_t> shape;
  for (int i = 0; i < TF_NumDims(x); i++) shape.push_back(TF_Dim(x, i));
  TF_Tensor* z = TF_AllocateOutput(ctx, 0, TF_TensorType(x), shape.data(), shape.size(), 0, status);
  if (TF_GetCode(status) != TF_OK) {
    printf("allocation failed: %s\n", TF_Message(status));
    TF_OpKernelContext_Failure(ctx, status);
  } else {
    @autoreleasepool {
      id<TF_MetalStream> stream = (id<TF_MetalStream>)(TF_GetStream(ctx, status));
      const uint32_t count = TF_TensorElementCount(x);
      dispatch_sync(stream.queue, ^() {
        @autoreleasepool {
          id<MTLCommandBuffer> commandBuffer = stream.currentCommandBuffer;
          id<MTLDevice> device = commandBuffer.device;
          NSError* error = nil;
          id<MTLFunction> function =
              [[Shaders::library() newFunctionWithName:@"Saxpy"] autorelease];
          id<MTLComputePipelineState> pipeline =
              [device newComputePipelineStateWithFunction:function error:&error];
          assert(pipeline);
          id<MTLBuffer> xBuffer = (id<MTLBuffer>)TF_TensorData(x);
          id<MTLBuffer> yBuffer = (id<MTLBuffer>)TF_TensorData(y);
          id<MTLBuffer> zBuffer = (id<MTLBuffer>)TF_TensorData(z);
          id<MTLComputeCommandEncoder> encoder = commandBuffer.computeCommandEncoder;
          [encoder setComputePipelineState:pipeline];
          [encoder setBuffer:xBuffer offset:0 atIndex:0];
          [encoder setBuffer:yBuffer offset:0 atIndex:1];
          [encoder setBuffer:zBuffer offset:0 atIndex:2];
          [encoder setBytes:&kernel->a length:sizeof(kernel->a) atIndex:3];
          [encoder setBytes:&count length:sizeof(count) atIndex:4];
          int threads = 256;
          int groups = ceil(float(count) / float(threads));
          [encoder dispatchThreadgroups:MTLSizeMake(groups, 1, 1)
                  threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
          [encoder endEncoding];
          [stream commit];
        }
      });
    }
  }
  TF_DeleteTensor(x);
  TF_DeleteTensor(y);
  TF_DeleteTensor(z);
  TF_DeleteStatus(status);
}

class InitPlugin {
 public:
  InitPlugin() {
    TF_Status* status = TF_NewStatus();
    TF_KernelBuilder* builder =
        TF_NewKernelBuilder("SampleSaxpy", "GPU", &Create, &Compute, &Delete);
    TF_RegisterKernelBuilder("SampleSaxpyOp", builder, status);
    if (TF_OK != TF_GetCode(status)) std::cout << "cannot register the kernel";
    TF_DeleteStatus(status);
  }
};

InitPlugin gInitPlugin;
