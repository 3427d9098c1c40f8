// Shared by the encoders.
#ifndef HOSTMETAL_SRC_ENCODER_H_
#define HOSTMETAL_SRC_ENCODER_H_

#import <Metal/Metal.h>

#include <string>

#include "hostmetal/src/buffer.h"
#include "hostmetal/src/command_buffer.h"

@class HMIndirectCommandBuffer;

@interface HMEncoder : HMLabelled <MTLCommandEncoder> {
 @public
  HMCommandBuffer* _buffer;
  uint32_t _number;
  BOOL _ended;
  std::atomic<uint64_t>* _lastSamples[4];  // to be taken at the end
  int _lastSampleCount;
}
- (id)initWithCommandBuffer:(HMCommandBuffer*)buffer;
- (id)initInside:(HMEncoder*)encoder;
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
// For the encoders that are made of it.
// NO, and an error of the command buffer, where it has ended.
- (BOOL)isOpen:(const char*)method;
- (void)fail:(int)code message:(const std::string&)message;
// The buffer, checked and kept alive; nil after an error.
- (HMBuffer*)use:(id<MTLBuffer>)object
          offset:(NSUInteger)offset
          length:(NSUInteger)length
          method:(const char*)method;
// The same of an indirect command buffer.
- (HMIndirectCommandBuffer*)useCommands:(id<MTLIndirectCommandBuffer>)object
                                 method:(const char*)method;
@end

namespace hostmetal {

// The time when all before it is done.
void Sample(HMEncoder* encoder, std::atomic<uint64_t>* slot);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_ENCODER_H_
