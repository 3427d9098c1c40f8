// The answers of a device that are the same for all.
#ifndef HOSTMETAL_SRC_DEVICE_FEATURES_H_
#define HOSTMETAL_SRC_DEVICE_FEATURES_H_

#import <Metal/Metal.h>

#include "hostmetal/src/object.h"

@interface HMDeviceFeatures : HMObject {
  std::atomic<bool> _shouldMaximizeConcurrentCompilation;
}
@property(readonly, getter=isLowPower) BOOL lowPower;
@property(readonly, getter=isHeadless) BOOL headless;
@property(readonly, getter=isRemovable) BOOL removable;
@property(readonly) MTLDeviceLocation location;
@property(readonly) NSUInteger locationNumber;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
- (BOOL)supportsFeatureSet:(MTLFeatureSet)featureSet;
@property(readonly) MTLReadWriteTextureTier readWriteTextureSupport;
@property(readonly) BOOL supports32BitFloatFiltering;
- (BOOL)supportsTextureSampleCount:(NSUInteger)sampleCount;
- (BOOL)supportsVertexAmplificationCount:(NSUInteger)count;
- (BOOL)supportsRasterizationRateMapWithLayerCount:(NSUInteger)layerCount;
@property(readonly) BOOL supportsDynamicLibraries;
@property(readonly) BOOL supportsRaytracing;
@property(readonly) BOOL supportsRenderDynamicLibraries;
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
@property(readonly) uint64_t peerGroupID;
@property(readonly) uint32_t peerIndex;
@property(readonly) uint32_t peerCount;
@property(readonly) uint64_t maxTransferRate;
@property(atomic) BOOL shouldMaximizeConcurrentCompilation;
@property(readonly) NSUInteger maximumConcurrentCompilationTaskCount;
@end

#endif  // HOSTMETAL_SRC_DEVICE_FEATURES_H_
