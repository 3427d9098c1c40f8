// The answers of a device that are the same for all.
#include "hostmetal/src/device_features.h"

@implementation HMDeviceFeatures

- (BOOL)isLowPower {
  return NO;
}
- (BOOL)isHeadless {
  return YES;
}
- (BOOL)isRemovable {
  return NO;
}
- (MTLDeviceLocation)location {
  return MTLDeviceLocationBuiltIn;
}
- (NSUInteger)locationNumber {
  return 0;
}

- (BOOL)supportsFamily:(MTLGPUFamily)family {
  // Apple7 is the family whose compute features the shader compiler has: simdgroup functions and
  // matrices, float atomics.
  return (family >= MTLGPUFamilyApple1 && family <= MTLGPUFamilyApple7) ||
         family == MTLGPUFamilyMac1 || family == MTLGPUFamilyMac2 ||
         (family >= MTLGPUFamilyCommon1 && family <= MTLGPUFamilyCommon3) ||
         family == MTLGPUFamilyMetal3;
}
- (BOOL)supportsFeatureSet:(MTLFeatureSet)featureSet {
  return featureSet >= MTLFeatureSet_macOS_GPUFamily1_v1 &&
         featureSet <= MTLFeatureSet_macOS_GPUFamily2_v1;
}
- (MTLReadWriteTextureTier)readWriteTextureSupport {
  return MTLReadWriteTextureTier2;
}
- (BOOL)supports32BitFloatFiltering {
  return YES;
}
- (BOOL)supportsTextureSampleCount:(NSUInteger)sampleCount {
  return sampleCount == 1;
}
- (BOOL)supportsVertexAmplificationCount:(NSUInteger)count {
  return NO;
}
- (BOOL)supportsRasterizationRateMapWithLayerCount:(NSUInteger)layerCount {
  return NO;
}

- (BOOL)supportsDynamicLibraries {
  return NO;
}
- (BOOL)supportsRaytracing {
  return NO;
}
- (BOOL)supportsRenderDynamicLibraries {
  return NO;
}
- (BOOL)supportsRaytracingFromRender {
  return NO;
}
- (BOOL)supportsPrimitiveMotionBlur {
  return NO;
}
- (BOOL)supportsFunctionPointersFromRender {
  return NO;
}
- (BOOL)supports32BitMSAA {
  return NO;
}
- (BOOL)supportsBCTextureCompression {
  return NO;
}
- (BOOL)supportsQueryTextureLOD {
  return NO;
}
- (BOOL)supportsPullModelInterpolation {
  return NO;
}
- (BOOL)supportsShaderBarycentricCoordinates {
  return NO;
}
- (BOOL)areBarycentricCoordsSupported {
  return NO;
}
- (BOOL)areProgrammableSamplePositionsSupported {
  return NO;
}
- (BOOL)areRasterOrderGroupsSupported {
  return NO;
}
- (BOOL)isDepth24Stencil8PixelFormatSupported {
  return NO;
}

- (uint64_t)peerGroupID {
  return 0;
}
- (uint32_t)peerIndex {
  return 0;
}
- (uint32_t)peerCount {
  return 0;
}
- (uint64_t)maxTransferRate {
  return 0;
}

- (void)setShouldMaximizeConcurrentCompilation:(BOOL)maximize {
  _shouldMaximizeConcurrentCompilation = maximize;
}
- (BOOL)shouldMaximizeConcurrentCompilation {
  return _shouldMaximizeConcurrentCompilation;
}
- (NSUInteger)maximumConcurrentCompilationTaskCount {
  return [[NSProcessInfo processInfo] activeProcessorCount];
}

@end
