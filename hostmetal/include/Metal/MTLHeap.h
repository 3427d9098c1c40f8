// Heaps: one allocation that many buffers and textures share.
#ifndef HOSTMETAL_MTLHEAP_H_
#define HOSTMETAL_MTLHEAP_H_

#import <Metal/MTLResource.h>

NS_ASSUME_NONNULL_BEGIN

@class MTLTextureDescriptor;
@protocol MTLBuffer;
@protocol MTLDevice;
@protocol MTLTexture;

typedef NS_ENUM(NSInteger, MTLHeapType) {
  MTLHeapTypeAutomatic = 0,
  MTLHeapTypePlacement = 1,
};

MTL_EXPORT
@interface MTLHeapDescriptor : NSObject <NSCopying> {
 @private
  NSUInteger _size;
  MTLResourceOptions _resourceOptions;
  MTLHeapType _type;
}
@property(readwrite, nonatomic) NSUInteger size;
// Private by default, as on a Mac.
@property(readwrite, nonatomic) MTLStorageMode storageMode;
@property(readwrite, nonatomic) MTLCPUCacheMode cpuCacheMode;
@property(readwrite, nonatomic) MTLHazardTrackingMode hazardTrackingMode;
@property(readwrite, nonatomic) MTLResourceOptions resourceOptions;
@property(readwrite, nonatomic) MTLHeapType type;
@end

@protocol MTLHeap <MTLAllocation>
@property(nullable, copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) MTLStorageMode storageMode;
@property(readonly) MTLCPUCacheMode cpuCacheMode;
@property(readonly) MTLHazardTrackingMode hazardTrackingMode;
@property(readonly) MTLResourceOptions resourceOptions;
@property(readonly) NSUInteger size;
@property(readonly) NSUInteger usedSize;
@property(readonly) NSUInteger currentAllocatedSize;
@property(readonly) MTLHeapType type;
- (NSUInteger)maxAvailableSizeWithAlignment:(NSUInteger)alignment;
// The contents are undefined. nil where there is no room, or the storage mode is not the heap's.
- (nullable id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                                      options:(MTLResourceOptions)options;
// In a placement heap: the caller keeps order, and buffers may overlap.
- (nullable id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                                      options:(MTLResourceOptions)options
                                       offset:(NSUInteger)offset;
// So for textures, whose descriptor says the storage mode.
- (nullable id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor*)descriptor;
- (nullable id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor*)descriptor
                                             offset:(NSUInteger)offset;
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLHEAP_H_
