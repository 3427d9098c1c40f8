// Shared by the encoders.
#include "hostmetal/src/encoder.h"

#include "hostmetal/src/errors.h"
#include "hostmetal/src/indirect_command_buffer.h"

using hostmetal::CommandBufferState;
using hostmetal::kInternal;
using hostmetal::kInvalidResource;

namespace {

std::string Number(uint64_t n) { return std::to_string(n); }

}  // namespace

namespace hostmetal {

void Sample(HMEncoder* encoder, std::atomic<uint64_t>* slot) {
  std::vector<Command>& commands = encoder->_buffer->_state->list.commands;
  if (commands.empty() || commands.back().sampled[1]) {
    encoder->_buffer->_state->list.Add(CommandType::kNothing);
  }
  Command& command = commands.back();
  command.sampled[command.sampled[0] != nullptr] = slot;
}

}  // namespace hostmetal

@implementation HMEncoder

- (id)initWithCommandBuffer:(HMCommandBuffer*)buffer {
  self = [super init];
  if (self) {
    _buffer = [buffer retain];
    CommandBufferState& b = *buffer->_state;
    b.open_encoder = self;
    _number = b.list.encoders++;
    b.encoders.emplace_back();
  }
  return self;
}

- (id)initInside:(HMEncoder*)encoder {
  self = [super init];
  if (self) {
    _buffer = [encoder->_buffer retain];
    _number = encoder->_number;
  }
  return self;
}

- (void)dealloc {
  if (!_ended) [self detach];
  [_buffer release];
  [super dealloc];
}

- (void)detach {
  CommandBufferState& b = *_buffer->_state;
  if (b.open_encoder == self) b.open_encoder = nil;
  NSString* label = [self label];
  if (label) b.encoders[_number].label = hostmetal::ToString(label);
  _ended = YES;
}

- (id<MTLDevice>)device {
  return _buffer->_queue->_device;
}

- (void)endEncoding {
  if (_ended) {
    [self isOpen:"endEncoding"];
    return;
  }
  for (int i = 0; i < _lastSampleCount; ++i) hostmetal::Sample(self, _lastSamples[i]);
  [self detach];
}

// Misuse is an error of the command buffer while that can still carry one.
- (BOOL)isOpen:(const char*)method {
  if (!_ended) return YES;
  std::string message = std::string("[") + method + "] the encoder has ended";
  CommandBufferState& b = *_buffer->_state;
  if (b.committed.load(std::memory_order_relaxed)) {
    fprintf(stderr, "%s and its command buffer is committed\n", message.c_str());
  } else {
    b.list.Fail(kInternal, message);
  }
  return NO;
}

- (void)fail:(int)code message:(const std::string&)message {
  _buffer->_state->list.Fail(code, message);
}

- (void)insertDebugSignpost:(NSString*)string {
  if ([self isOpen:"insertDebugSignpost"]) {
    _buffer->_state->encoders[_number].signposts.push_back(hostmetal::ToString(string));
  }
}
- (void)pushDebugGroup:(NSString*)string {
  if (![self isOpen:"pushDebugGroup"]) return;
  _buffer->_state->encoders[_number].signposts.push_back(hostmetal::ToString(string));
  [_buffer pushDebugGroup:string];
}
- (void)popDebugGroup {
  if ([self isOpen:"popDebugGroup"]) [_buffer popDebugGroup];
}

// Commands run one after the other unless an encoder is concurrent, and encoders always do: fences
// hold by themselves.
- (void)updateFence:(id<MTLFence>)fence {
  [self isOpen:"updateFence"];
}
- (void)waitForFence:(id<MTLFence>)fence {
  [self isOpen:"waitForFence"];
}

- (HMBuffer*)use:(id<MTLBuffer>)object
          offset:(NSUInteger)offset
          length:(NSUInteger)length
          method:(const char*)method {
  auto* buffer = (HMBuffer*)object;
  if (![buffer isKindOfClass:HM_CLASS(HMBuffer)] || buffer->_device != _buffer->_queue->_device) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] the buffer is nil or not of this device"];
    return nil;
  }
  if (offset > buffer->_length || length > buffer->_length - offset) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] bytes " + Number(offset) + " to " +
                Number(offset + length) + " of a buffer of " + Number(buffer->_length) + " bytes"];
    return nil;
  }
  _buffer->_state->Use(buffer);
  return buffer;
}
- (HMIndirectCommandBuffer*)useCommands:(id<MTLIndirectCommandBuffer>)object
                                 method:(const char*)method {
  auto* commands = (HMIndirectCommandBuffer*)object;
  if (![commands isKindOfClass:HM_CLASS(HMIndirectCommandBuffer)] ||
      commands->_device != _buffer->_queue->_device) {
    [self fail:kInvalidResource
        message:std::string("[") + method +
                "] the indirect command buffer is nil or not of this device"];
    return nil;
  }
  _buffer->_state->Use(commands);
  return commands;
}

@end
