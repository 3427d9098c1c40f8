// MTLHeap: buffers and textures in one allocation, first fit.
#include <map>
#include <mutex>

#include "hostmetal/src/buffer.h"
#include "hostmetal/src/texture.h"

namespace hostmetal {

struct HeapState {
  Allocation allocation;
  NSUInteger size;
  MTLResourceOptions options;
  MTLHeapType type;
  std::atomic<NSUInteger> purgeable{MTLPurgeableStateNonVolatile};
  std::mutex mutex;
  std::map<NSUInteger, NSUInteger> taken;  // offset -> size; automatic heaps only

  // The first hole of that size, or the largest hole's size in `largest`.
  bool Find(NSUInteger wanted, NSUInteger alignment, NSUInteger* offset, NSUInteger* largest) {
    NSUInteger at = 0;
    *largest = 0;
    auto look = [&](NSUInteger end) {
      NSUInteger hole = end > at ? end - at : 0;
      *largest = std::max(*largest, hole);
      return hole >= wanted;
    };
    for (const auto& [begin, length] : taken) {
      if (look(begin)) break;
      at = (begin + length + alignment - 1) / alignment * alignment;
    }
    *offset = at;
    return look(size);
  }
};

}  // namespace hostmetal

using hostmetal::HeapState;

namespace {

constexpr NSUInteger kAlignment = 256;

NSUInteger RoundUp(NSUInteger length) {
  return (length + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

@implementation MTLHeapDescriptor
- (id)init {
  self = [super init];
  if (self) _resourceOptions = MTLResourceStorageModePrivate;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLHeapDescriptor* copy = [[MTLHeapDescriptor alloc] init];
  [copy setSize:_size];
  [copy setResourceOptions:_resourceOptions];
  [copy setType:_type];
  return copy;
}
@synthesize size = _size;
@synthesize resourceOptions = _resourceOptions;
@synthesize type = _type;
- (MTLStorageMode)storageMode {
  return hostmetal::StorageMode(_resourceOptions);
}
- (void)setStorageMode:(MTLStorageMode)mode {
  _resourceOptions = hostmetal::WithStorageMode(_resourceOptions, mode);
}
- (MTLCPUCacheMode)cpuCacheMode {
  return hostmetal::CpuCacheMode(_resourceOptions);
}
- (void)setCpuCacheMode:(MTLCPUCacheMode)mode {
  _resourceOptions = hostmetal::WithCpuCacheMode(_resourceOptions, mode);
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  return hostmetal::HazardTrackingMode(_resourceOptions);
}
- (void)setHazardTrackingMode:(MTLHazardTrackingMode)mode {
  _resourceOptions = hostmetal::WithHazardTrackingMode(_resourceOptions, mode);
}
@end

@implementation HMHeap

- (NSUInteger)allocatedSize {
  return [self currentAllocatedSize];
}

- (id)initWithDevice:(HMDevice*)device
          allocation:(hostmetal::Allocation)allocation
          descriptor:(MTLHeapDescriptor*)descriptor {
  self = [super init];
  if (self) {
    _device = device;
    _state = new HeapState;
    _state->allocation = allocation;
    _state->size = RoundUp([descriptor size]);
    _state->options = [descriptor resourceOptions];
    _state->type = [descriptor type];
  }
  return self;
}
- (void)dealloc {
  _device->_allocated.fetch_sub(_state->allocation.size, std::memory_order_relaxed);
  _device->_driver->Free(_state->allocation);
  delete _state;
  [super dealloc];
}
- (NSString*)description {
  return [NSString stringWithFormat:@"<MTLHeap %p size %lu '%@'>", self,
                                    (unsigned long)_state->size, [self label] ? [self label] : @""];
}
- (id<MTLDevice>)device {
  return _device;
}
- (MTLStorageMode)storageMode {
  return hostmetal::StorageMode(_state->options);
}
- (MTLCPUCacheMode)cpuCacheMode {
  return hostmetal::CpuCacheMode(_state->options);
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  // Default means untracked for a heap.
  auto mode = hostmetal::HazardTrackingMode(_state->options);
  return mode == MTLHazardTrackingModeTracked ? MTLHazardTrackingModeTracked
                                              : MTLHazardTrackingModeUntracked;
}
- (MTLResourceOptions)resourceOptions {
  return _state->options;
}
- (NSUInteger)size {
  return _state->size;
}
- (NSUInteger)usedSize {
  std::lock_guard<std::mutex> lock(_state->mutex);
  NSUInteger used = 0;
  for (const auto& entry : _state->taken) used += entry.second;
  return used;
}
- (NSUInteger)currentAllocatedSize {
  return _state->allocation.size;
}
- (MTLHeapType)type {
  return _state->type;
}
- (NSUInteger)maxAvailableSizeWithAlignment:(NSUInteger)alignment {
  std::lock_guard<std::mutex> lock(_state->mutex);
  NSUInteger offset, largest;
  _state->Find(NSUIntegerMax, std::max(alignment, kAlignment), &offset, &largest);
  return largest;
}
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state {
  return MTLPurgeableState(state == MTLPurgeableStateKeepCurrent
                               ? _state->purgeable.load()
                               : _state->purgeable.exchange(state));
}

- (HMBuffer*)newBuffer:(NSUInteger)length at:(NSUInteger)offset {
  HMBuffer* buffer = [[HMBuffer alloc] init];
  buffer->_device = _device;
  const hostmetal::Allocation& all = _state->allocation;
  buffer->_allocation = {static_cast<char*>(all.device) + offset,
                         all.host ? static_cast<char*>(all.host) + offset : nullptr,
                         RoundUp(length)};
  buffer->_length = length;
  buffer->_options = _state->options;
  buffer->_heap = [self retain];
  buffer->_heapOffset = offset;
  return buffer;
}

- (BOOL)takes:(NSUInteger)length options:(MTLResourceOptions)options {
  return length != 0 && length <= _state->size &&
         (options & MTLResourceStorageModeMask) == (_state->options & MTLResourceStorageModeMask);
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  if (_state->type != MTLHeapTypeAutomatic || ![self takes:length options:options]) return nil;
  std::lock_guard<std::mutex> lock(_state->mutex);
  NSUInteger offset, largest;
  if (!_state->Find(RoundUp(length), kAlignment, &offset, &largest)) return nil;
  _state->taken[offset] = RoundUp(length);
  return [self newBuffer:length at:offset];
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                             options:(MTLResourceOptions)options
                              offset:(NSUInteger)offset {
  if (_state->type != MTLHeapTypePlacement || ![self takes:length options:options] ||
      offset % kAlignment != 0 || offset > _state->size - length) {
    return nil;
  }
  return [self newBuffer:length at:offset];
}

// A texture's pixels are such a buffer, which the texture alone holds.
- (id<MTLTexture>)newTexture:(id<MTLBuffer>)memory descriptor:(MTLTextureDescriptor*)descriptor {
  HMTexture* texture = [HMTexture newIn:(HMBuffer*)memory descriptor:descriptor];
  if (texture) texture->_options = _state->options;
  [memory release];
  return texture;
}
- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor*)descriptor {
  return [self newTexture:[self newBufferWithLength:hostmetal::TextureBytes(descriptor)
                                            options:[descriptor resourceOptions]]
               descriptor:descriptor];
}
- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor*)descriptor
                                    offset:(NSUInteger)offset {
  return [self newTexture:[self newBufferWithLength:hostmetal::TextureBytes(descriptor)
                                            options:[descriptor resourceOptions]
                                             offset:offset]
               descriptor:descriptor];
}

- (void)freeOffset:(NSUInteger)offset {
  if (_state->type != MTLHeapTypeAutomatic) return;
  std::lock_guard<std::mutex> lock(_state->mutex);
  _state->taken.erase(offset);
}

@end
