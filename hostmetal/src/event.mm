// MTLEvent, MTLSharedEvent and its listeners.
#include "hostmetal/src/event.h"
#include "hostmetal/src/sync.h"

@implementation HMEvent
- (id)initWithDevice:(HMDevice*)device {
  self = [super init];
  if (self) {
    _device = device;
    _event = new hostmetal::EventState;
  }
  return self;
}
- (void)dealloc {
  delete _event;
  [super dealloc];
}
- (id<MTLDevice>)device {
  return _device;
}
@end

@implementation HMSharedEvent

- (uint64_t)signaledValue {
  return _event->value();
}
- (void)setSignaledValue:(uint64_t)value {
  _event->Signal(value);
}

- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds {
  uint64_t now = hostmetal::Now();
  uint64_t limit = (hostmetal::kForever - 1 - now) / 1000000;
  uint64_t deadline = milliseconds > limit ? hostmetal::kForever : now + milliseconds * 1000000;
  return _event->Wait(value, deadline);
}

- (void)notifyListener:(MTLSharedEventListener*)listener
               atValue:(uint64_t)value
                 block:(MTLSharedEventNotificationBlock)block {
  // The event owns its waiting blocks, so a block's reference to the event would keep both for
  // ever; by the time the value is reached, the signalling code holds the event.
  hostmetal::Retained<dispatch_queue_t> queue([listener dispatchQueue]);
  hostmetal::Retained<id> work([[block copy] autorelease]);
  HMSharedEvent* event = self;
  _event->Notify(value, [queue, work, event] {
    auto call = (MTLSharedEventNotificationBlock)work.get();
    dispatch_async(queue.get(), ^{
      call(event, [event signaledValue]);
    });
  });
}

- (MTLSharedEventHandle*)newSharedEventHandle {
  return [[MTLSharedEventHandle alloc] initWithEvent:self];
}

@end

@implementation MTLSharedEventHandle
- (id)initWithEvent:(HMSharedEvent*)event {
  self = [super init];
  if (self) _event = [event retain];
  return self;
}
- (void)dealloc {
  [_event release];
  [super dealloc];
}
- (id<MTLSharedEvent>)event {
  return _event;
}
- (NSString*)label {
  return [_event label];
}
+ (BOOL)supportsSecureCoding {
  return YES;
}
- (void)encodeWithCoder:(NSCoder*)coder {
  [NSException raise:NSInvalidArgumentException
              format:@"[MTLSharedEventHandle encodeWithCoder:] a handle cannot leave its process; "
                     @"signal the other one by means of your own"];
}
- (id)initWithCoder:(NSCoder*)coder {
  [self release];
  [NSException raise:NSInvalidArgumentException
              format:@"[MTLSharedEventHandle initWithCoder:] no coder holds a handle, as none is "
                     @"ever encoded"];
  return nil;
}
@end

@implementation MTLSharedEventListener
- (instancetype)init {
  dispatch_queue_t queue =
      dispatch_queue_create("metal.shared-event-listener", DISPATCH_QUEUE_SERIAL);
  self = [self initWithDispatchQueue:queue];
  [queue release];
  return self;
}
- (instancetype)initWithDispatchQueue:(dispatch_queue_t)dispatchQueue {
  self = [super init];
  if (self) _dispatchQueue = [dispatchQueue retain];
  return self;
}
- (void)dealloc {
  [_dispatchQueue release];
  [super dealloc];
}
- (dispatch_queue_t)dispatchQueue {
  return _dispatchQueue;
}
@end
