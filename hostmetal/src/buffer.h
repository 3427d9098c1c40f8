// MTLHeap and MTLBuffer, and the options of a resource.
#ifndef HOSTMETAL_SRC_BUFFER_H_
#define HOSTMETAL_SRC_BUFFER_H_

#import <Metal/Metal.h>

#include <atomic>

#include "hostmetal/src/device.h"
#include "hostmetal/src/driver.h"

namespace hostmetal {

struct HeapState;

// The parts of a resource's options.
inline MTLStorageMode StorageMode(MTLResourceOptions options) {
  return MTLStorageMode((options & MTLResourceStorageModeMask) >> MTLResourceStorageModeShift);
}
inline MTLCPUCacheMode CpuCacheMode(MTLResourceOptions options) {
  return MTLCPUCacheMode((options & MTLResourceCPUCacheModeMask) >> MTLResourceCPUCacheModeShift);
}
inline MTLHazardTrackingMode HazardTrackingMode(MTLResourceOptions options) {
  return MTLHazardTrackingMode((options & MTLResourceHazardTrackingModeMask) >>
                               MTLResourceHazardTrackingModeShift);
}
inline MTLResourceOptions WithStorageMode(MTLResourceOptions options, MTLStorageMode mode) {
  return (options & ~MTLResourceStorageModeMask) | (mode << MTLResourceStorageModeShift);
}
inline MTLResourceOptions WithCpuCacheMode(MTLResourceOptions options, MTLCPUCacheMode mode) {
  return (options & ~MTLResourceCPUCacheModeMask) | (mode << MTLResourceCPUCacheModeShift);
}
inline MTLResourceOptions WithHazardTrackingMode(MTLResourceOptions options,
                                                 MTLHazardTrackingMode mode) {
  return (options & ~MTLResourceHazardTrackingModeMask) |
         (mode << MTLResourceHazardTrackingModeShift);
}

// Where a resource's memory belongs.
inline Storage StorageOf(MTLResourceOptions options) {
  return StorageMode(options) == MTLStorageModePrivate           ? Storage::kPrivate
         : CpuCacheMode(options) == MTLCPUCacheModeWriteCombined ? Storage::kUpload
                                                                 : Storage::kShared;
}

}  // namespace hostmetal

@interface HMHeap : HMLabelled <MTLHeap> {
 @public
  HMDevice* _device;
  hostmetal::HeapState* _state;
}
- (id)initWithDevice:(HMDevice*)device
          allocation:(hostmetal::Allocation)allocation
          descriptor:(MTLHeapDescriptor*)descriptor;
// Gives a buffer's room back.
- (void)freeOffset:(NSUInteger)offset;
@end

@interface HMBuffer : HMLabelled <MTLBuffer> {
 @public
  HMDevice* _device;
  hostmetal::Allocation _allocation;
  NSUInteger _length;
  MTLResourceOptions _options;
  BOOL _borrowed;  // bytes of newBufferWithBytesNoCopy:
  void (^_deallocator)(void*, NSUInteger);
  HMHeap* _heap;  // whose memory it is, or nil
  NSUInteger _heapOffset;
  std::atomic<NSUInteger> _purgeable;
  std::atomic<bool> _aliasable;
  NSMutableArray* _markers;
}
@end

// A resource whose memory is a buffer's: textures and tensors. Those of its facts that are its memory's.
@interface HMPlaced : HMLabelled {
 @public
  HMBuffer* _memory;
}
- (id<MTLHeap>)heap;
- (NSUInteger)heapOffset;
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state;
- (void)makeAliasable;
- (BOOL)isAliasable;
@end

#endif  // HOSTMETAL_SRC_BUFFER_H_
