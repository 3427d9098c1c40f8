// The device: limits, and the makers of everything else.
#ifndef HOSTMETAL_MTLDEVICE_H_
#define HOSTMETAL_MTLDEVICE_H_

#import <Metal/MTLArgumentEncoder.h>
#import <Metal/MTLCounters.h>
#import <Metal/MTLDefines.h>
#import <Metal/MTLLibrary.h>
#import <Metal/MTLPixelFormat.h>
#import <Metal/MTLResource.h>
#import <Metal/MTLTensor.h>
#import <Metal/MTLTypes.h>
#include <dispatch/dispatch.h>

NS_ASSUME_NONNULL_BEGIN

@class MTLBinaryArchiveDescriptor;
@class MTLComputePipelineDescriptor;
@class MTLCommandQueueDescriptor;
@class MTLComputePipelineReflection;
@class MTLHeapDescriptor;
@class MTLIndirectCommandBufferDescriptor;
@class MTLLogStateDescriptor;
@class MTLResidencySetDescriptor;
@class MTLSamplerDescriptor;
@class MTLSharedEventHandle;
@class MTLTextureDescriptor;
@protocol MTLBinaryArchive;
@protocol MTLBuffer;
@protocol MTLCommandQueue;
@protocol MTLComputePipelineState;
@protocol MTLDevice;
@protocol MTLDynamicLibrary;
@protocol MTLEvent;
@protocol MTLFence;
@protocol MTLHeap;
@protocol MTLIndirectCommandBuffer;
@protocol MTLLogState;
@protocol MTLResidencySet;
@protocol MTLSamplerState;
@protocol MTLSharedEvent;
@protocol MTLTexture;

MTL_EXTERN id<MTLDevice> _Nullable MTLCreateSystemDefaultDevice(void) NS_RETURNS_RETAINED;
MTL_EXTERN NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) NS_RETURNS_RETAINED;

typedef NSString* MTLDeviceNotificationName;
MTL_EXTERN MTLDeviceNotificationName const MTLDeviceWasAddedNotification;
MTL_EXTERN MTLDeviceNotificationName const MTLDeviceRemovalRequestedNotification;
MTL_EXTERN MTLDeviceNotificationName const MTLDeviceWasRemovedNotification;
typedef void (^MTLDeviceNotificationHandler)(id<MTLDevice> device, MTLDeviceNotificationName name);
// No device comes or goes here: the handler is never called.
MTL_EXTERN NSArray<id<MTLDevice>>* MTLCopyAllDevicesWithObserver(
    id<NSObject> _Nullable* _Nonnull observer,
    MTLDeviceNotificationHandler handler) NS_RETURNS_RETAINED;
MTL_EXTERN void MTLRemoveDeviceObserver(id<NSObject> observer);

typedef NS_ENUM(NSInteger, MTLGPUFamily) {
  MTLGPUFamilyApple1 = 1001,
  MTLGPUFamilyApple2 = 1002,
  MTLGPUFamilyApple3 = 1003,
  MTLGPUFamilyApple4 = 1004,
  MTLGPUFamilyApple5 = 1005,
  MTLGPUFamilyApple6 = 1006,
  MTLGPUFamilyApple7 = 1007,
  MTLGPUFamilyApple8 = 1008,
  MTLGPUFamilyApple9 = 1009,
  MTLGPUFamilyApple10 = 1010,
  MTLGPUFamilyMac1 = 2001,
  MTLGPUFamilyMac2 = 2002,
  MTLGPUFamilyCommon1 = 3001,
  MTLGPUFamilyCommon2 = 3002,
  MTLGPUFamilyCommon3 = 3003,
  MTLGPUFamilyMacCatalyst1 = 4001,
  MTLGPUFamilyMacCatalyst2 = 4002,
  MTLGPUFamilyMetal3 = 5001,
  MTLGPUFamilyMetal4 = 5002,
};

// Feature sets, which programs asked for before there were families.
typedef NS_ENUM(NSUInteger, MTLFeatureSet) {
  MTLFeatureSet_macOS_GPUFamily1_v1 = 10000,
  MTLFeatureSet_macOS_GPUFamily1_v2 = 10001,
  MTLFeatureSet_macOS_ReadWriteTextureTier2 = 10002,
  MTLFeatureSet_macOS_GPUFamily1_v3 = 10003,
  MTLFeatureSet_macOS_GPUFamily1_v4 = 10004,
  MTLFeatureSet_macOS_GPUFamily2_v1 = 10005,
};

typedef NS_ENUM(NSUInteger, MTLReadWriteTextureTier) {
  MTLReadWriteTextureTierNone = 0,
  MTLReadWriteTextureTier1 = 1,
  MTLReadWriteTextureTier2 = 2,
};

typedef NS_ENUM(NSUInteger, MTLArgumentBuffersTier) {
  MTLArgumentBuffersTier1 = 0,
  MTLArgumentBuffersTier2 = 1,
};

typedef NS_OPTIONS(NSUInteger, MTLPipelineOption) {
  MTLPipelineOptionNone = 0,
  MTLPipelineOptionArgumentInfo = 1 << 0,
  MTLPipelineOptionBindingInfo = 1 << 0,
  MTLPipelineOptionBufferTypeInfo = 1 << 1,
  // With binaryArchives that do not have the function: no pipeline, instead of compiling it.
  MTLPipelineOptionFailOnBinaryArchiveMiss = 1 << 2,
};

typedef __autoreleasing MTLComputePipelineReflection* _Nullable MTLAutoreleasedComputePipelineReflection;
typedef void (^MTLNewLibraryCompletionHandler)(id<MTLLibrary> _Nullable library,
                                               NSError* _Nullable error);
typedef void (^MTLNewComputePipelineStateCompletionHandler)(
    id<MTLComputePipelineState> _Nullable computePipelineState, NSError* _Nullable error);
typedef void (^MTLNewComputePipelineStateWithReflectionCompletionHandler)(
    id<MTLComputePipelineState> _Nullable computePipelineState,
    MTLComputePipelineReflection* _Nullable reflection, NSError* _Nullable error);
typedef uint64_t MTLTimestamp;

typedef struct {
  NSUInteger size;
  NSUInteger align;
} MTLSizeAndAlign;

typedef NS_ENUM(NSUInteger, MTLDeviceLocation) {
  MTLDeviceLocationBuiltIn = 0,
  MTLDeviceLocationSlot = 1,
  MTLDeviceLocationExternal = 2,
  MTLDeviceLocationUnspecified = NSUIntegerMax,
};

typedef NS_ENUM(NSUInteger, MTLCounterSamplingPoint) {
  MTLCounterSamplingPointAtStageBoundary,
  MTLCounterSamplingPointAtDrawBoundary,
  MTLCounterSamplingPointAtDispatchBoundary,
  MTLCounterSamplingPointAtTileDispatchBoundary,
  MTLCounterSamplingPointAtBlitBoundary,
};

// The name of the processor's architecture.
MTL_EXPORT
@interface MTLArchitecture : NSObject <NSCopying> {
 @private
  NSString* _name;
}
@property(readonly, nonatomic) NSString* name;
@end

@protocol MTLDevice <NSObject>

@property(readonly) NSString* name;
@property(readonly) uint64_t registryID;
@property(readonly) MTLSize maxThreadsPerThreadgroup;
@property(readonly, getter=isLowPower) BOOL lowPower;
@property(readonly, getter=isHeadless) BOOL headless;
@property(readonly, getter=isRemovable) BOOL removable;
@property(readonly) BOOL hasUnifiedMemory;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@property(readonly) NSUInteger currentAllocatedSize;
@property(readonly) NSUInteger maxThreadgroupMemoryLength;
@property(readonly) NSUInteger maxBufferLength;
@property(readonly) MTLArchitecture* architecture;
@property(readonly) MTLDeviceLocation location;
@property(readonly) NSUInteger locationNumber;
// YES on the processor.
@property(readonly) BOOL supportsFunctionPointers;
@property(readonly) MTLReadWriteTextureTier readWriteTextureSupport;  // tier 2
@property(readonly) BOOL supports32BitFloatFiltering;                 // YES
// All NO: features of rendering, ray tracing and compressed textures alone, and dynamic libraries.
@property(readonly) BOOL supportsDynamicLibraries;
@property(readonly) BOOL supportsRenderDynamicLibraries;
@property(readonly) BOOL supportsRaytracing;
@property(readonly) BOOL supportsRaytracingFromRender;
@property(readonly) BOOL supportsPrimitiveMotionBlur;
@property(readonly) BOOL supportsFunctionPointersFromRender;
@property(readonly) BOOL supports32BitMSAA;
@property(readonly) BOOL supportsBCTextureCompression;
@property(readonly) BOOL supportsQueryTextureLOD;
@property(readonly) BOOL supportsPullModelInterpolation;
@property(readonly) BOOL supportsShaderBarycentricCoordinates;
@property(readonly, getter=areBarycentricCoordsSupported) BOOL barycentricCoordsSupported;
@property(readonly, getter=areProgrammableSamplePositionsSupported)
    BOOL programmableSamplePositionsSupported;
@property(readonly, getter=areRasterOrderGroupsSupported) BOOL rasterOrderGroupsSupported;
@property(readonly, getter=isDepth24Stencil8PixelFormatSupported)
    BOOL depth24Stencil8PixelFormatSupported;
// One device alone, and no bus to it.
@property(readonly) uint64_t peerGroupID;
@property(readonly) uint32_t peerIndex;
@property(readonly) uint32_t peerCount;
@property(readonly) uint64_t maxTransferRate;
// A hint, kept; compilations share the processors in any case.
@property(atomic) BOOL shouldMaximizeConcurrentCompilation;
@property(readonly) NSUInteger maximumConcurrentCompilationTaskCount;

- (BOOL)supportsFeatureSet:(MTLFeatureSet)featureSet;
- (BOOL)supportsTextureSampleCount:(NSUInteger)sampleCount;                 // of 1
- (BOOL)supportsVertexAmplificationCount:(NSUInteger)count;                 // NO
- (BOOL)supportsRasterizationRateMapWithLayerCount:(NSUInteger)layerCount;  // NO

// The answer is about the compute half of a family; there is no rendering at all.
- (BOOL)supportsFamily:(MTLGPUFamily)gpuFamily;
- (void)sampleTimestamps:(MTLTimestamp*)cpuTimestamp gpuTimestamp:(MTLTimestamp*)gpuTimestamp;

@property(readonly, nullable) NSArray<id<MTLCounterSet>>* counterSets;
// At the start and the end of passes, between dispatches and between blits. HOSTMETAL_COUNTERS=stages leaves the first
// alone, as Apple's GPUs do.
- (BOOL)supportsCounterSampling:(MTLCounterSamplingPoint)samplingPoint;
// 1 to 4096 samples.
- (nullable id<MTLCounterSampleBuffer>)
    newCounterSampleBufferWithDescriptor:(MTLCounterSampleBufferDescriptor*)descriptor
                                   error:(__autoreleasing NSError**)error;

@property(readonly) MTLArgumentBuffersTier argumentBuffersSupport;  // tier 2
@property(readonly) NSUInteger maxArgumentBufferSamplerCount;
// nil where an index is used twice or a type cannot be there.
- (nullable id<MTLArgumentEncoder>)newArgumentEncoderWithArguments:
    (NSArray<MTLArgumentDescriptor*>*)arguments;
- (nullable id<MTLArgumentEncoder>)newArgumentEncoderWithBufferBinding:
    (id<MTLBufferBinding>)bufferBinding;

- (nullable id<MTLLogState>)newLogStateWithDescriptor:(MTLLogStateDescriptor*)descriptor
                                                error:(__autoreleasing NSError**)error;
- (nullable id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                                        error:(__autoreleasing NSError**)error;

// At most 64 command buffers that are not completed.
- (nullable id<MTLCommandQueue>)newCommandQueue;
- (nullable id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:
    (NSUInteger)maxCommandBufferCount;

- (nullable id<MTLCommandQueue>)newCommandQueueWithDescriptor:
    (MTLCommandQueueDescriptor*)descriptor;

- (nullable id<MTLHeap>)newHeapWithDescriptor:(MTLHeapDescriptor*)descriptor;
// The size of a buffer in a heap.
- (MTLSizeAndAlign)heapBufferSizeAndAlignWithLength:(NSUInteger)length
                                            options:(MTLResourceOptions)options;
// And of a texture: size 0 for one that this device does not have.
- (MTLSizeAndAlign)heapTextureSizeAndAlignWithDescriptor:(MTLTextureDescriptor*)descriptor;

// Zero-filled; nil when length is 0 or the memory cannot be had.
- (nullable id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                                      options:(MTLResourceOptions)options;
- (nullable id<MTLBuffer>)newBufferWithBytes:(const void*)pointer
                                      length:(NSUInteger)length
                                     options:(MTLResourceOptions)options;
// Pointer and length must be multiples of the page size.
- (nullable id<MTLBuffer>)
    newBufferWithBytesNoCopy:(void*)pointer
                      length:(NSUInteger)length
                     options:(MTLResourceOptions)options
                 deallocator:(void (^_Nullable)(void* pointer, NSUInteger length))deallocator;

// Zero-filled, of elements one behind the other.
- (nullable id<MTLTensor>)newTensorWithDescriptor:(MTLTensorDescriptor*)descriptor
                                            error:(__autoreleasing NSError* _Nullable* _Nullable)
                                                      error;
// 0 and 0 for a descriptor of which no tensor can be made.
- (MTLSizeAndAlign)tensorSizeAndAlignWithDescriptor:(MTLTensorDescriptor*)descriptor;

// Zero-filled. nil for a format, type or size that this device does not have.
- (nullable id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor*)descriptor;
- (nullable id<MTLSamplerState>)newSamplerStateWithDescriptor:(MTLSamplerDescriptor*)descriptor;
// The alignment of offsets and rows of textures over a buffer.
- (NSUInteger)minimumLinearTextureAlignmentForPixelFormat:(MTLPixelFormat)format;
- (NSUInteger)minimumTextureBufferAlignmentForPixelFormat:(MTLPixelFormat)format;

// A compiled library is native code that runs with the rights of this process: load only files that
// you would run. It is checked before the loader sees it (whole, for this processor, a .metallib),
// so that other shared objects, whose constructors would run, and damaged files are errors.
- (nullable id<MTLLibrary>)newDefaultLibrary;
- (nullable id<MTLLibrary>)newDefaultLibraryWithBundle:(NSBundle*)bundle
                                                 error:(__autoreleasing NSError**)error;
- (nullable id<MTLLibrary>)newLibraryWithFile:(NSString*)filepath
                                        error:(__autoreleasing NSError**)error;
- (nullable id<MTLLibrary>)newLibraryWithURL:(NSURL*)url error:(__autoreleasing NSError**)error;
- (nullable id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data
                                        error:(__autoreleasing NSError**)error;
- (nullable id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                                        options:(nullable MTLCompileOptions*)options
                                          error:(__autoreleasing NSError**)error;
- (void)newLibraryWithSource:(NSString*)source
                     options:(nullable MTLCompileOptions*)options
           completionHandler:(MTLNewLibraryCompletionHandler)completionHandler;

- (nullable id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                  error:(__autoreleasing NSError**)error;
- (nullable id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                options:(MTLPipelineOption)options
                             reflection:
                                 (MTLAutoreleasedComputePipelineReflection* _Nullable)reflection
                                  error:(__autoreleasing NSError**)error;
- (void)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                          completionHandler:
                              (MTLNewComputePipelineStateCompletionHandler)completionHandler;
- (void)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                    options:(MTLPipelineOption)options
                          completionHandler:
                              (MTLNewComputePipelineStateWithReflectionCompletionHandler)
                                  completionHandler;
- (nullable id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:
                                   (MTLAutoreleasedComputePipelineReflection* _Nullable)reflection
                                    error:(__autoreleasing NSError**)error;
- (void)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                      options:(MTLPipelineOption)options
                            completionHandler:
                                (MTLNewComputePipelineStateWithReflectionCompletionHandler)
                                    completionHandler;

// An empty archive, or that of the descriptor's file; errors are of MTLBinaryArchiveDomain.
- (nullable id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:
                                     (MTLBinaryArchiveDescriptor*)descriptor
                                                          error:(__autoreleasing NSError**)error;

// Always nil: MTLDynamicLibraryErrorUnsupported.
- (nullable id<MTLDynamicLibrary>)newDynamicLibrary:(id<MTLLibrary>)library
                                              error:(__autoreleasing NSError**)error;
- (nullable id<MTLDynamicLibrary>)newDynamicLibraryWithURL:(NSURL*)url
                                                     error:(__autoreleasing NSError**)error;

// nil for commands that are no dispatches, and for more than 16384.
- (nullable id<MTLIndirectCommandBuffer>)
    newIndirectCommandBufferWithDescriptor:(MTLIndirectCommandBufferDescriptor*)descriptor
                           maxCommandCount:(NSUInteger)maxCount
                                   options:(MTLResourceOptions)options;

- (nullable id<MTLFence>)newFence;
- (nullable id<MTLEvent>)newEvent;
- (nullable id<MTLSharedEvent>)newSharedEvent;
- (nullable id<MTLSharedEvent>)newSharedEventWithHandle:(MTLSharedEventHandle*)sharedEventHandle;

@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLDEVICE_H_
