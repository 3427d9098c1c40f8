// Encoder of copies and fills.
#ifndef HOSTMETAL_MTLBLITCOMMANDENCODER_H_
#define HOSTMETAL_MTLBLITCOMMANDENCODER_H_

#import <Metal/MTLBlitPass.h>
#import <Metal/MTLBuffer.h>
#import <Metal/MTLCommandEncoder.h>
#import <Metal/MTLFence.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLBlitCommandEncoder <MTLCommandEncoder>

- (void)synchronizeResource:(id<MTLResource>)resource;
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value;
- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size;
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;

@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLBLITCOMMANDENCODER_H_
