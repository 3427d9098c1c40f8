// Compute pipelines: descriptor, reflection and state.
#ifndef HOSTMETAL_MTLCOMPUTEPIPELINE_H_
#define HOSTMETAL_MTLCOMPUTEPIPELINE_H_

#import <Metal/MTLArgument.h>
#import <Metal/MTLLibrary.h>
#import <Metal/MTLPipeline.h>

NS_ASSUME_NONNULL_BEGIN

@class MTLLinkedFunctions;
@class MTLVisibleFunctionTableDescriptor;
@protocol MTLBinaryArchive;
@protocol MTLDynamicLibrary;
@protocol MTLFunctionHandle;
@protocol MTLVisibleFunctionTable;

MTL_EXPORT
@interface MTLComputePipelineReflection : NSObject {
 @private
  NSArray* _arguments;
  NSArray* _bindings;
}
@property(readonly) NSArray<id<MTLBinding>>* bindings;
@property(readonly) NSArray<MTLArgument*>* arguments;
@end

MTL_EXPORT
@interface MTLComputePipelineDescriptor : NSObject <NSCopying> {
 @private
  NSString* _label;
  id<MTLFunction> _computeFunction;
  BOOL _threadGroupSizeIsMultipleOfThreadExecutionWidth;
  NSUInteger _maxTotalThreadsPerThreadgroup;
  MTLPipelineBufferDescriptorArray* _buffers;
  NSArray<id<MTLBinaryArchive>>* _binaryArchives;
  MTLLinkedFunctions* _linkedFunctions;
  BOOL _supportAddingBinaryFunctions;
  NSUInteger _maxCallStackDepth;
  BOOL _supportIndirectCommandBuffers;
  NSArray<id<MTLDynamicLibrary>>* _preloadedLibraries;
}
@property(nullable, copy, nonatomic) NSString* label;
@property(nullable, readwrite, nonatomic, retain) id<MTLFunction> computeFunction;
// An optimisation hint; checked under METAL_DEVICE_WRAPPER_TYPE=1.
@property(readwrite, nonatomic) BOOL threadGroupSizeIsMultipleOfThreadExecutionWidth;
@property(readwrite, nonatomic) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) MTLPipelineBufferDescriptorArray* buffers;
// Looked through in order before anything is compiled.
@property(nullable, readwrite, nonatomic, copy) NSArray<id<MTLBinaryArchive>>* binaryArchives;
// The [[visible]] functions that tables of the pipeline may have.
@property(nullable, readwrite, nonatomic, copy) MTLLinkedFunctions* linkedFunctions;
@property(readwrite, nonatomic) BOOL supportAddingBinaryFunctions;
// Dynamic libraries: an error, unless it is nil or empty. The other is its older name.
@property(nullable, readwrite, nonatomic, copy) NSArray<id<MTLDynamicLibrary>>* preloadedLibraries;
@property(nullable, readwrite, nonatomic, copy) NSArray<id<MTLDynamicLibrary>>* insertLibraries;
// A hint: stacks have room for any depth.
@property(readwrite, nonatomic) NSUInteger maxCallStackDepth;
// Refused for kernels with textures and samplers, which no indirect command can be given.
@property(readwrite, nonatomic) BOOL supportIndirectCommandBuffers;
- (void)reset;
@end

@protocol MTLComputePipelineState <NSObject>
@property(nullable, readonly) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@property(readonly) NSUInteger staticThreadgroupMemoryLength;
@property(readonly) BOOL supportIndirectCommandBuffers;
// nil for a function that the pipeline was not linked with.
- (nullable id<MTLFunctionHandle>)functionHandleWithFunction:(id<MTLFunction>)function;
- (nullable id<MTLVisibleFunctionTable>)newVisibleFunctionTableWithDescriptor:
    (MTLVisibleFunctionTableDescriptor*)descriptor;
// A pipeline with more functions; this one's handles and tables are not the other's.
- (nullable id<MTLComputePipelineState>)
    newComputePipelineStateWithAdditionalBinaryFunctions:(NSArray<id<MTLFunction>>*)functions
                                                   error:(__autoreleasing NSError**)error;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLCOMPUTEPIPELINE_H_
