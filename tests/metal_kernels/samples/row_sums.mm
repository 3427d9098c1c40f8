// Another third party's op, all in one file: the metallib is searched for below the program's
// bundle, errors go through TensorFlow's C++ Status under header names of TensorFlow 2.12, the work
// is waited for.

#import <Metal/Metal.h>
#include <dispatch/dispatch.h>
#include <filesystem>
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/lib/core/errors.h"
#include "tensorflow/tsl/c/tsl_status_helper.h"
#include "tensorflow/tsl/platform/errors.h"

@protocol TF_MetalStream
- (dispatch_queue_t)queue;
- (id<MTLCommandBuffer>)currentCommandBuffer;
- (void)commit;
- (void)commitAndWait;
@end

REGISTER_OP("SampleRowSums")
    .Input("matrix: float")
    .Output("sums: float")
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->UnknownShapeOfRank(1));
      return tensorflow::Status::OK();
    });

std::optional<std::string> find_shaders(std::string const& root) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().filename() == "_row_sums.metallib") return entry.path().string();
  }
  return std::nullopt;
}

id<MTLLibrary> shaders() {
  static id<MTLLibrary> library = nil;
  if (library == nil) {
    NSString* bundlePath = [[NSBundle mainBundle] resourcePath];
    NSString* parentPath = [bundlePath stringByDeletingLastPathComponent];
    auto found = find_shaders(std::string([parentPath cString]) + "/lib");
    if (!found) {
      std::cerr << "no shaders below " << [parentPath cString] << std::endl;
      std::abort();
    }
    @autoreleasepool {
      NSError* error = nil;
      NSURL* url = [NSURL URLWithString:[NSString stringWithUTF8String:found->c_str()]];
      library = [MTLCreateSystemDefaultDevice() newLibraryWithURL:url error:&error];
      if (!library) {
        printf("Compilation error: %s\n", [[error description] UTF8String]);
        std::abort();
      }
    }
  }
  return library;
}

static void* RowSums_Create(TF_OpKernelConstruction* ctx) { return nullptr; }
static void RowSums_Delete(void* kernel) {}

static void RowSums_Compute(void* kernel, TF_OpKernelContext* ctx) {
  TF_Status* status = TF_NewStatus();
  TF_Tensor* matrix = nullptr;
  TF_GetInput(ctx, 0, &matrix, status);
  if (TF_NumDims(matrix) != 2) {
    const auto error = tensorflow::errors::InvalidArgument(
        "SampleRowSums wants a matrix, not rank " + std::to_string(TF_NumDims(matrix)));
    tsl::Set_TSL_Status_from_Status(status, error);
    TF_OpKernelContext_Failure(ctx, status);
    TF_DeleteTensor(matrix);
    TF_DeleteStatus(status);
    return;
  }
  const int64_t rows = TF_Dim(matrix, 0);
  const uint columns = TF_Dim(matrix, 1);
  TF_Tensor* sums = TF_AllocateOutput(ctx, 0, TF_FLOAT, &rows, 1, 0, status);
  @autoreleasepool {
    id<TF_MetalStream> metalStream = (id<TF_MetalStream>)(TF_GetStream(ctx, status));
    dispatch_sync(metalStream.queue, ^() {
      @autoreleasepool {
        id<MTLCommandBuffer> commandBuffer = metalStream.currentCommandBuffer;
        NSError* error = nil;
        id<MTLFunction> function = [[shaders()
            newFunctionWithName:[NSString stringWithUTF8String:"row_sums"]] autorelease];
        id<MTLComputePipelineState> pipeline =
            [commandBuffer.device newComputePipelineStateWithFunction:function error:&error];
        assert(pipeline);
        id<MTLComputeCommandEncoder> encoder = commandBuffer.computeCommandEncoder;
        [encoder setComputePipelineState:pipeline];
        [encoder setBuffer:(id<MTLBuffer>)TF_TensorData(matrix) offset:0 atIndex:0];
        [encoder setBuffer:(id<MTLBuffer>)TF_TensorData(sums) offset:0 atIndex:1];
        [encoder setBytes:&columns length:sizeof(uint) atIndex:2];
        [encoder dispatchThreadgroups:MTLSizeMake(rows, 1, 1)
                threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
        [encoder endEncoding];
        [metalStream commitAndWait];
      }
    });
  }
  TF_DeleteTensor(matrix);
  TF_DeleteTensor(sums);
  TF_DeleteStatus(status);
}

class InitRowSums {
 public:
  InitRowSums() {
    if (MTLCreateSystemDefaultDevice()) {
      auto* builder = TF_NewKernelBuilder("SampleRowSums", "GPU", &RowSums_Create, &RowSums_Compute,
                                          &RowSums_Delete);
      TF_Status* status = TF_NewStatus();
      TF_RegisterKernelBuilder("SampleRowSumsOp", builder, status);
      TF_DeleteStatus(status);
    }
  }
};

InitRowSums gInitRowSums;
