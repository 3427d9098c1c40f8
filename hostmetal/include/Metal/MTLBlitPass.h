// Descriptor of a blit pass.
#ifndef HOSTMETAL_MTLBLITPASS_H_
#define HOSTMETAL_MTLBLITPASS_H_

#import <Metal/MTLCounters.h>

NS_ASSUME_NONNULL_BEGIN

// Where the times of a pass go. An index of MTLCounterDontSample takes none.
MTL_EXPORT
@interface MTLBlitPassSampleBufferAttachmentDescriptor : NSObject <NSCopying> {
 @package
  id<MTLCounterSampleBuffer> _sampleBuffer;
  NSUInteger _startOfEncoderSampleIndex;
  NSUInteger _endOfEncoderSampleIndex;
}
@property(nullable, nonatomic, retain) id<MTLCounterSampleBuffer> sampleBuffer;
@property(nonatomic) NSUInteger startOfEncoderSampleIndex;
@property(nonatomic) NSUInteger endOfEncoderSampleIndex;
@end

// Four of them, made when they are asked for; nil beyond.
MTL_EXPORT
@interface MTLBlitPassSampleBufferAttachmentDescriptorArray : NSObject {
 @package
  MTLBlitPassSampleBufferAttachmentDescriptor* _attachments[4];
}
- (MTLBlitPassSampleBufferAttachmentDescriptor*)objectAtIndexedSubscript:
    (NSUInteger)attachmentIndex;
// nil takes it away.
- (void)setObject:(nullable MTLBlitPassSampleBufferAttachmentDescriptor*)attachment
    atIndexedSubscript:(NSUInteger)attachmentIndex;
@end

MTL_EXPORT
@interface MTLBlitPassDescriptor : NSObject <NSCopying> {
 @package
  MTLBlitPassSampleBufferAttachmentDescriptorArray* _sampleBufferAttachments;
}
+ (MTLBlitPassDescriptor*)blitPassDescriptor;
@property(readonly) MTLBlitPassSampleBufferAttachmentDescriptorArray* sampleBufferAttachments;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLBLITPASS_H_
