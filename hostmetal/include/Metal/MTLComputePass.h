// Descriptor of a compute pass.
#ifndef HOSTMETAL_MTLCOMPUTEPASS_H_
#define HOSTMETAL_MTLCOMPUTEPASS_H_

#import <Metal/MTLCommandBuffer.h>
#import <Metal/MTLCounters.h>

NS_ASSUME_NONNULL_BEGIN

// Where the times of a pass go. An index of MTLCounterDontSample takes none.
MTL_EXPORT
@interface MTLComputePassSampleBufferAttachmentDescriptor : NSObject <NSCopying> {
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
@interface MTLComputePassSampleBufferAttachmentDescriptorArray : NSObject {
 @package
  MTLComputePassSampleBufferAttachmentDescriptor* _attachments[4];
}
- (MTLComputePassSampleBufferAttachmentDescriptor*)objectAtIndexedSubscript:
    (NSUInteger)attachmentIndex;
// nil takes it away.
- (void)setObject:(nullable MTLComputePassSampleBufferAttachmentDescriptor*)attachment
    atIndexedSubscript:(NSUInteger)attachmentIndex;
@end

MTL_EXPORT
@interface MTLComputePassDescriptor : NSObject <NSCopying> {
 @package
  MTLDispatchType _dispatchType;
  MTLComputePassSampleBufferAttachmentDescriptorArray* _sampleBufferAttachments;
}
+ (MTLComputePassDescriptor*)computePassDescriptor;
@property(nonatomic) MTLDispatchType dispatchType;
@property(readonly) MTLComputePassSampleBufferAttachmentDescriptorArray* sampleBufferAttachments;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLCOMPUTEPASS_H_
