// Another third party's op, in one file of C++20: op, kernel, and a shader that is compiled at run
// time from its source; a function constant, passed threadgroup memory, exceptions.

#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_status.h"

#import <Metal/Metal.h>

#include <concepts>
#include <stdexcept>
#include <string>
#include <unordered_map>

@protocol TF_MetalStream
- (dispatch_queue_t)queue;
- (id<MTLCommandBuffer>)currentCommandBuffer;
- (void)commit;
- (void)commitAndWait;
@end

namespace {

constexpr const char* kSource = R"msl(
#include <metal_stdlib>
using namespace metal;

constant bool take_log [[function_constant(0)]];

// One threadgroup a row.
kernel void row_softmax(const device float* x, device float* y, constant uint2& shape,
                        threadgroup float* scratch [[threadgroup(0)]],
                        uint3 group [[threadgroup_position_in_grid]],
                        ushort lane [[thread_index_in_simdgroup]],
                        ushort simd [[simdgroup_index_in_threadgroup]],
                        ushort n_simds [[simdgroups_per_threadgroup]],
                        uint t [[thread_position_in_threadgroup]],
                        uint n_threads [[threads_per_threadgroup]]) {
  const device float* row = x + group.x * shape.x;
  float largest = -INFINITY;
  for (uint i = t; i < shape.x; i += n_threads) largest = max(largest, row[i]);
  largest = simd_max(largest);
  if (lane == 0) scratch[simd] = largest;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (ushort s = 0; s < n_simds; ++s) largest = max(largest, scratch[s]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (uint i = t; i < shape.x; i += n_threads) sum += precise::exp(row[i] - largest);
  sum = simd_sum(sum);
  if (simd_is_first()) scratch[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = 0;
  for (ushort s = 0; s < n_simds; ++s) sum += scratch[s];
  for (uint i = t; i < shape.x; i += n_threads) {
    const float shifted = row[i] - largest;
    y[group.x * shape.x + i] = take_log ? shifted - log(sum) : precise::exp(shifted) / sum;
  }
}
)msl";

template <typename T>
  requires std::integral<T>
T RoundUp(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

id<MTLComputePipelineState> Pipeline(id<MTLDevice> device, bool take_log) {
  static std::unordered_map<bool, id<MTLComputePipelineState>> pipelines;
  if (auto found = pipelines.find(take_log); found != pipelines.end()) return found->second;
  NSError* error = nil;
  MTLCompileOptions* options = [[MTLCompileOptions new] autorelease];
  options.fastMathEnabled = NO;
  options.languageVersion = MTLLanguageVersion3_0;
  options.preprocessorMacros = @{@"UNUSED" : @"1"};
  NSString* source = [NSString stringWithUTF8String:kSource];
  id<MTLLibrary> library = [device newLibraryWithSource:source options:options error:&error];
  if (!library) throw std::runtime_error([[error localizedDescription] UTF8String]);
  MTLFunctionConstantValues* constants = [[MTLFunctionConstantValues alloc] init];
  [constants setConstantValue:&take_log type:MTLDataTypeBool atIndex:0];
  id<MTLFunction> function = [library newFunctionWithName:@"row_softmax"
                                           constantValues:constants
                                                    error:&error];
  [constants release];
  [library release];
  if (!function) throw std::runtime_error(error.localizedDescription.UTF8String);
  MTLComputePipelineDescriptor* descriptor =
      [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  descriptor.computeFunction = function;
  descriptor.threadGroupSizeIsMultipleOfThreadExecutionWidth = YES;
  descriptor.label = @"row softmax";
  id<MTLComputePipelineState> pipeline =
      [device newComputePipelineStateWithDescriptor:descriptor
                                            options:MTLPipelineOptionNone
                                         reflection:nil
                                              error:&error];
  [function release];
  if (!pipeline) throw std::runtime_error(error.localizedDescription.UTF8String);
  return pipelines[take_log] = pipeline;
}

struct Kernel {
  bool take_log;
};

void* Create(TF_OpKernelConstruction* ctx) {
  auto* kernel = new Kernel();
  TF_Status* status = TF_NewStatus();
  unsigned char take_log = 0;
  TF_OpKernelConstruction_GetAttrBool(ctx, "take_log", &take_log, status);
  kernel->take_log = take_log;
  if (TF_GetCode(status) != TF_OK) TF_OpKernelConstruction_Failure(ctx, status);
  TF_DeleteStatus(status);
  return kernel;
}

void Delete(void* kernel) { delete static_cast<Kernel*>(kernel); }

void Compute(void* raw, TF_OpKernelContext* ctx) {
  const auto* kernel = static_cast<Kernel*>(raw);
  TF_Status* status = TF_NewStatus();
  TF_Tensor* x = nullptr;
  TF_GetInput(ctx, 0, &x, status);
  TF_Tensor* y = nullptr;
  try {
    if (TF_NumDims(x) != 2) {
      throw std::invalid_argument("SampleRowSoftmax wants rank 2, got " +
                                  std::to_string(TF_NumDims(x)));
    }
    const int64_t dims[] = {TF_Dim(x, 0), TF_Dim(x, 1)};
    y = TF_AllocateOutput(ctx, 0, TF_FLOAT, dims, 2, TF_TensorByteSize(x), status);
    if (TF_GetCode(status) != TF_OK) throw std::runtime_error(TF_Message(status));
    const uint32_t rows = dims[0], columns = dims[1];
    auto stream = (id<TF_MetalStream>)TF_GetStream(ctx, status);
    @autoreleasepool {
      id<MTLComputePipelineState> pipeline =
          Pipeline(stream.currentCommandBuffer.device, kernel->take_log);
      dispatch_sync(stream.queue, ^{
        @autoreleasepool {
          id<MTLComputeCommandEncoder> encoder = [stream.currentCommandBuffer
              computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
          [encoder setComputePipelineState:pipeline];
          [encoder setBuffer:(id<MTLBuffer>)TF_TensorData(x) offset:0 atIndex:0];
          [encoder setBuffer:(id<MTLBuffer>)TF_TensorData(y) offset:0 atIndex:1];
          const uint32_t shape[2] = {columns, rows};
          [encoder setBytes:shape length:sizeof(shape) atIndex:2];
          const NSUInteger width = pipeline.threadExecutionWidth;
          const NSUInteger threads = std::min<NSUInteger>(RoundUp<NSUInteger>(shape[0], width),
                                                          pipeline.maxTotalThreadsPerThreadgroup);
          [encoder setThreadgroupMemoryLength:RoundUp<NSUInteger>(threads / width * 4, 16)
                                      atIndex:0];
          [encoder dispatchThreadgroups:MTLSizeMake(shape[1], 1, 1)
                  threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
          [encoder endEncoding];
          [stream commit];
        }
      });
    }
  } catch (const std::invalid_argument& error) {
    TF_SetStatus(status, TF_INVALID_ARGUMENT, error.what());
    TF_OpKernelContext_Failure(ctx, status);
  } catch (const std::exception& error) {
    TF_SetStatus(status, TF_INTERNAL, error.what());
    TF_OpKernelContext_Failure(ctx, status);
  }
  TF_DeleteTensor(x);
  TF_DeleteTensor(y);
  TF_DeleteStatus(status);
}

void ShapeOf(TF_ShapeInferenceContext* ctx, TF_Status* status) {
  TF_ShapeHandle* shape = TF_NewShapeHandle();
  TF_ShapeInferenceContextGetInput(ctx, 0, shape, status);
  TF_ShapeInferenceContextSetOutput(ctx, 0, shape, status);
  TF_DeleteShapeHandle(shape);
}

struct Init {
  Init() {
    TF_Status* status = TF_NewStatus();
    TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("SampleRowSoftmax");
    TF_OpDefinitionBuilderAddInput(op, "x: float");
    TF_OpDefinitionBuilderAddOutput(op, "y: float");
    TF_OpDefinitionBuilderAddAttr(op, "take_log: bool = false");
    TF_OpDefinitionBuilderSetShapeInferenceFunction(op, &ShapeOf);
    TF_RegisterOpDefinition(op, status);
    if (TF_GetCode(status) != TF_OK) printf("%s\n", TF_Message(status));
    auto* builder = TF_NewKernelBuilder("SampleRowSoftmax", "GPU", &Create, &Compute, &Delete);
    TF_RegisterKernelBuilder("SampleRowSoftmaxKernel", builder, status);
    if (TF_GetCode(status) != TF_OK) printf("%s\n", TF_Message(status));
    TF_DeleteStatus(status);
  }
} init;

}  // namespace
