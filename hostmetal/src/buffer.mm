// MTLBuffer.
#include "hostmetal/src/buffer.h"
#include "hostmetal/include/hostmetal.h"
#include "hostmetal/src/tensor.h"
#include "hostmetal/src/texture.h"

id<MTLBuffer> hostmetal_new_buffer_over(id<MTLDevice> processor, void* memory, NSUInteger length) {
  if (processor != hostmetal_processor() || !memory || length == 0) return nil;
  return [(HMDevice*)processor newBufferOver:memory
                                      length:length
                                     options:MTLResourceStorageModeShared];
}

void* hostmetal_buffer_address(id<MTLBuffer> buffer) {
  return ((HMBuffer*)buffer)->_allocation.host;
}

namespace {

bool Within(HMBuffer* buffer, NSUInteger offset, NSUInteger length) {
  return offset <= buffer->_length && length <= buffer->_length - offset;
}

char* At(HMBuffer* buffer, NSUInteger offset) {
  return static_cast<char*>(buffer->_allocation.device) + offset;
}

}  // namespace

bool hostmetal_read(id<MTLBuffer> from, NSUInteger offset, void* to, NSUInteger length) {
  auto* buffer = (HMBuffer*)from;
  return Within(buffer, offset, length) &&
         (!length || buffer->_device->_driver->Transfer(to, At(buffer, offset), length));
}

bool hostmetal_write(id<MTLBuffer> to, NSUInteger offset, const void* from, NSUInteger length) {
  auto* buffer = (HMBuffer*)to;
  return Within(buffer, offset, length) &&
         (!length || buffer->_device->_driver->Transfer(At(buffer, offset), from, length));
}

bool hostmetal_fill(id<MTLBuffer> to, NSUInteger offset, uint8_t value, NSUInteger length) {
  auto* buffer = (HMBuffer*)to;
  return Within(buffer, offset, length) &&
         (!length || buffer->_device->_driver->Fill(At(buffer, offset), value, length));
}

@implementation HMBuffer

- (void)dealloc {
  [_markers release];
  if (_heap) {
    [self makeAliasable];
    [_heap release];
    [super dealloc];
    return;
  }
  _device->_allocated.fetch_sub(_allocation.size, std::memory_order_relaxed);
  if (!_borrowed) {
    _device->_driver->Free(_allocation);
  } else {
    _device->_driver->Return(_allocation);
    if (_deallocator) {
      _deallocator(_allocation.host, _length);
      Block_release(_deallocator);
    }
  }
  [super dealloc];
}

- (NSString*)description {
  NSString* text =
      [NSString stringWithFormat:@"<MTLBuffer %p length %lu '%@'>", self, (unsigned long)_length,
                                 [self label] ? [self label] : @""];
  @synchronized(self) {
    for (NSString* marker in _markers) text = [text stringByAppendingFormat:@" %@", marker];
  }
  return text;
}

- (id<MTLDevice>)device {
  return _device;
}
- (NSUInteger)length {
  return _length;
}
- (void*)contents {
  return [self storageMode] == MTLStorageModePrivate ? nullptr : _allocation.host;
}
- (uint64_t)gpuAddress {
  return reinterpret_cast<uint64_t>(_allocation.device);
}
- (void)didModifyRange:(NSRange)range {
  // The kernels read the same memory: there is nothing to flush.
}
- (void)addDebugMarker:(NSString*)marker range:(NSRange)range {
  @synchronized(self) {
    if (!_markers) _markers = [[NSMutableArray alloc] init];
    [_markers addObject:[NSString stringWithFormat:@"'%@' %@", marker, NSStringFromRange(range)]];
  }
}
- (void)removeAllDebugMarkers {
  @synchronized(self) {
    [_markers removeAllObjects];
  }
}
- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor*)descriptor
                                    offset:(NSUInteger)offset
                               bytesPerRow:(NSUInteger)bytesPerRow {
  return [HMTexture newOver:self descriptor:descriptor offset:offset bytesPerRow:bytesPerRow];
}
- (id<MTLTensor>)newTensorWithDescriptor:(MTLTensorDescriptor*)descriptor
                                  offset:(NSUInteger)offset
                                   error:(NSError**)error {
  return [HMTensor newForDevice:_device
                     descriptor:descriptor
                         buffer:self
                         offset:offset
                          error:error];
}
- (id<MTLHeap>)heap {
  return _heap;
}
- (NSUInteger)heapOffset {
  return _heapOffset;
}
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state {
  NSUInteger before =
      state == MTLPurgeableStateKeepCurrent ? _purgeable.load() : _purgeable.exchange(state);
  return before ? MTLPurgeableState(before) : MTLPurgeableStateNonVolatile;
}
- (void)makeAliasable {
  if (_heap && !_aliasable.exchange(true)) [_heap freeOffset:_heapOffset];
}
- (BOOL)isAliasable {
  return _aliasable;
}
- (MTLCPUCacheMode)cpuCacheMode {
  return hostmetal::CpuCacheMode(_options);
}
- (MTLStorageMode)storageMode {
  return hostmetal::StorageMode(_options);
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  // Default means tracked for a buffer that a device makes.
  auto mode = hostmetal::HazardTrackingMode(_options);
  return mode == MTLHazardTrackingModeUntracked ? MTLHazardTrackingModeUntracked
                                                : MTLHazardTrackingModeTracked;
}
- (MTLResourceOptions)resourceOptions {
  return _options;
}
- (NSUInteger)allocatedSize {
  return _allocation.size;
}

@end

@implementation HMPlaced
- (void)dealloc {
  [_memory release];
  [super dealloc];
}
- (id<MTLHeap>)heap {
  return [_memory heap];
}
- (NSUInteger)heapOffset {
  return [_memory heapOffset];
}
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state {
  return [_memory setPurgeableState:state];
}
- (void)makeAliasable {
  [_memory makeAliasable];
}
- (BOOL)isAliasable {
  return [_memory isAliasable];
}
@end
