// Buffers: all memory is host memory, so Managed behaves as Shared; Private hides its contents as
// on a Mac.
#ifndef HOSTMETAL_MTLBUFFER_H_
#define HOSTMETAL_MTLBUFFER_H_

#import <Metal/MTLResource.h>
#import <Metal/MTLTensor.h>
#import <Metal/MTLTexture.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLBuffer <MTLResource>

@property(readonly) NSUInteger length;
@property(readonly) uint64_t gpuAddress;
// NULL for MTLStorageModePrivate.
- (void*)contents NS_RETURNS_INNER_POINTER;
- (void)didModifyRange:(NSRange)range;
// Shown in the buffer's description.
- (void)addDebugMarker:(NSString*)marker range:(NSRange)range;
- (void)removeAllDebugMarkers;
// A texture of the buffer's bytes; nil where it does not fit, or offset or bytesPerRow are not
// multiples of
// -[MTLDevice minimumLinearTextureAlignmentForPixelFormat:].
- (nullable id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor*)descriptor
                                             offset:(NSUInteger)offset
                                        bytesPerRow:(NSUInteger)bytesPerRow;
// A tensor of the buffer's bytes; an error where it does not fit.
- (nullable id<MTLTensor>)newTensorWithDescriptor:(MTLTensorDescriptor*)descriptor
                                           offset:(NSUInteger)offset
                                            error:(__autoreleasing NSError* _Nullable* _Nullable)
                                                      error;

@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLBUFFER_H_
