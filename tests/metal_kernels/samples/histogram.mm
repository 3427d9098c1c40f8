// A third party's op, second half: a class that caches pipelines, the metallib found by a file
// enumerator below the bundle's resources, a blit before the dispatch, errors printed.

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <dispatch/dispatch.h>

#include "tensorflow/c/kernels.h"
#include "tensorflow/c/tf_datatype.h"
#include "tensorflow/c/tf_tensor.h"

@protocol MTLCommandBuffer;

@protocol TF_MetalStream <NSObject>
@property(nonatomic, readonly) dispatch_queue_t queue;
@property(nonatomic, readonly) id<MTLCommandBuffer> currentCommandBuffer;
- (void)commit;
- (void)commitAndWait;
@end

typedef struct {
  float low;
  float inverseWidth;
  unsigned int bins;
  unsigned int width;
  unsigned int height;
} Params;

@interface ShaderStore : NSObject {
  id<MTLLibrary> _library;
  NSMutableDictionary* _pipelines;
}
+ (ShaderStore*)sharedStore;
- (id<MTLComputePipelineState>)pipelineNamed:(NSString*)name device:(id<MTLDevice>)device;
@end

@implementation ShaderStore

+ (ShaderStore*)sharedStore {
  static ShaderStore* store = nil;
  static dispatch_once_t once;
  dispatch_once(&once, ^{
    store = [[ShaderStore alloc] init];
  });
  return store;
}

- (instancetype)init {
  if ((self = [super init])) {
    _pipelines = [[NSMutableDictionary alloc] init];
  }
  return self;
}

- (void)dealloc {
  [_pipelines release];
  [_library release];
  [super dealloc];
}

- (NSURL*)locate {
  NSString* resources = [[NSBundle mainBundle] resourcePath];
  NSURL* prefix = [NSURL fileURLWithPath:[resources stringByDeletingLastPathComponent]];
  NSFileManager* files = [NSFileManager defaultManager];
  NSDirectoryEnumerator* tree = [files enumeratorAtURL:prefix
                            includingPropertiesForKeys:@[]
                                               options:0
                                          errorHandler:^BOOL(NSURL* url, NSError* error) {
                                            return YES;
                                          }];
  for (NSURL* url in tree) {
    if ([[url lastPathComponent] isEqualToString:@"histogram.metallib"]) return url;
  }
  return nil;
}

- (id<MTLComputePipelineState>)pipelineNamed:(NSString*)name device:(id<MTLDevice>)device {
  @synchronized(self) {
    id<MTLComputePipelineState> known = [_pipelines objectForKey:name];
    if (known != nil) return known;
    NSError* error = nil;
    if (_library == nil) {
      NSURL* url = [self locate];
      if (url == nil) {
        NSLog(@"histogram.metallib was not found");
        return nil;
      }
      _library = [device newLibraryWithURL:url error:&error];
      if (_library == nil || error != nil) {
        NSLog(@"Failed to load %@: %@", url, error.localizedDescription);
        return nil;
      }
    }
    id<MTLFunction> function = [_library newFunctionWithName:name];
    id<MTLComputePipelineState> made = [device newComputePipelineStateWithFunction:function
                                                                             error:&error];
    if (made == nil) {
      printf("%s: %s\n", name.UTF8String, error.localizedDescription.UTF8String);
      [function release];
      return nil;
    }
    [_pipelines setObject:made forKey:name];
    [function release];
    [made release];
    return made;
  }
}

@end

struct HistogramKernel {
  int32_t bins = 0;
  float range[2] = {0, 1};
  TF_DataType type = TF_FLOAT;
};

static void* HistogramCreate(TF_OpKernelConstruction* ctx) {
  HistogramKernel* kernel = new HistogramKernel();
  TF_Status* status = TF_NewStatus();
  TF_OpKernelConstruction_GetAttrInt32(ctx, "bins", &kernel->bins, status);
  if (TF_GetCode(status) == TF_OK) {
    TF_OpKernelConstruction_GetAttrFloatList(ctx, "range", kernel->range, 2, status);
  }
  if (TF_GetCode(status) == TF_OK) {
    TF_OpKernelConstruction_GetAttrType(ctx, "T", &kernel->type, status);
  }
  if (TF_GetCode(status) != TF_OK) {
    TF_OpKernelConstruction_Failure(ctx, status);
    delete kernel;
    kernel = nullptr;
  }
  TF_DeleteStatus(status);
  return kernel;
}

static void HistogramDelete(void* kernel) { delete reinterpret_cast<HistogramKernel*>(kernel); }

static void HistogramCompute(void* raw, TF_OpKernelContext* ctx) {
  auto* kernel = reinterpret_cast<HistogramKernel*>(raw);
  TF_Status* status = TF_NewStatus();
  TF_Tensor* values = nullptr;
  TF_GetInput(ctx, 0, &values, status);

  const int64_t countDims[1] = {kernel->bins};
  TF_Tensor* counts = TF_AllocateOutput(ctx, 0, TF_UINT32, countDims, 1,
                                        kernel->bins * TF_DataTypeSize(TF_UINT32), status);
  TF_Tensor* total = TF_AllocateOutput(ctx, 1, TF_FLOAT, nullptr, 0, sizeof(float), status);
  if (TF_GetCode(status) != TF_OK) {
    printf("allocation failed: %s\n", TF_Message(status));
    TF_OpKernelContext_Failure(ctx, status);
  } else {
    id<TF_MetalStream> stream = (id<TF_MetalStream>)TF_GetStream(ctx, status);
    Params params;
    params.low = kernel->range[0];
    params.bins = kernel->bins;
    params.inverseWidth = kernel->bins / (kernel->range[1] - kernel->range[0]);
    params.width = (unsigned int)TF_Dim(values, 1);
    params.height = (unsigned int)TF_Dim(values, 0);
    __block BOOL ok = NO;
    dispatch_sync([stream queue], ^{
      @autoreleasepool {
        id<MTLCommandBuffer> commandBuffer = [stream currentCommandBuffer];
        id<MTLBuffer> countsBuffer = (id<MTLBuffer>)TF_TensorData(counts);
        id<MTLBuffer> totalBuffer = (id<MTLBuffer>)TF_TensorData(total);

        id<MTLBlitCommandEncoder> blit = [commandBuffer blitCommandEncoder];
        blit.label = @"clear";
        [blit fillBuffer:countsBuffer range:NSMakeRange(0, TF_TensorByteSize(counts)) value:0];
        [blit fillBuffer:totalBuffer range:NSMakeRange(0, sizeof(float)) value:0];
        [blit endEncoding];

        NSString* name = kernel->type == TF_HALF ? @"histogram_half" : @"histogram_float";
        id<MTLComputePipelineState> pipeline =
            [[ShaderStore sharedStore] pipelineNamed:name device:[commandBuffer device]];
        if (pipeline == nil) return;
        id<MTLComputeCommandEncoder> encoder = [commandBuffer computeCommandEncoder];
        [encoder pushDebugGroup:name];
        [encoder setComputePipelineState:pipeline];
        [encoder setBuffer:(id<MTLBuffer>)TF_TensorData(values) offset:0 atIndex:0];
        id<MTLBuffer> outputs[] = {countsBuffer, totalBuffer};
        NSUInteger offsets[] = {0, 0};
        [encoder setBuffers:outputs offsets:offsets withRange:NSMakeRange(1, 2)];
        [encoder setBytes:&params length:sizeof(params) atIndex:3];
        NSUInteger w = pipeline.threadExecutionWidth;
        NSUInteger h = MIN(pipeline.maxTotalThreadsPerThreadgroup / w, (NSUInteger)4);
        [encoder dispatchThreads:MTLSizeMake(params.width, params.height, 1)
            threadsPerThreadgroup:MTLSizeMake(w, h, 1)];
        [encoder popDebugGroup];
        [encoder endEncoding];
        [commandBuffer addCompletedHandler:^(id<MTLCommandBuffer> done) {
          if (done.error != nil) NSLog(@"%@", done.error);
        }];
        ok = YES;
        [stream commit];
      }
    });
    if (!ok) {
      TF_SetStatus(status, TF_INTERNAL, "no pipeline for SampleHistogram");
      TF_OpKernelContext_Failure(ctx, status);
    }
  }
  if (values) TF_DeleteTensor(values);
  if (counts) TF_DeleteTensor(counts);
  if (total) TF_DeleteTensor(total);
  TF_DeleteStatus(status);
}

static void RegisterFor(TF_DataType type) {
  TF_Status* status = TF_NewStatus();
  TF_KernelBuilder* builder = TF_NewKernelBuilder("SampleHistogram", "GPU", HistogramCreate,
                                                  HistogramCompute, HistogramDelete);
  TF_KernelBuilder_TypeConstraint(builder, "T", type, status);
  if (TF_GetCode(status) != TF_OK) printf("constraint: %s\n", TF_Message(status));
  TF_RegisterKernelBuilder("SampleHistogram", builder, status);
  if (TF_GetCode(status) != TF_OK) printf("register: %s\n", TF_Message(status));
  TF_DeleteStatus(status);
}

__attribute__((constructor)) static void RegisterAll() {
  RegisterFor(TF_FLOAT);
  RegisterFor(TF_HALF);
}
