// MTLFence, MTLEvent and MTLSharedEvent.
#ifndef HOSTMETAL_SRC_EVENT_H_
#define HOSTMETAL_SRC_EVENT_H_

#import <Metal/Metal.h>

#include "hostmetal/src/command_list.h"
#include "hostmetal/src/device.h"

@interface HMFence : HMLabelled <MTLFence> {
 @public
  HMDevice* _device;
}
@end

@interface HMEvent : HMLabelled <MTLEvent> {
 @public
  HMDevice* _device;  // nil for a shared event
  hostmetal::EventState* _event;
}
- (id)initWithDevice:(HMDevice*)device;
@end
@interface HMSharedEvent : HMEvent <MTLSharedEvent>
@end

@interface MTLSharedEventHandle (Hostmetal)
- (id)initWithEvent:(HMSharedEvent*)event;
- (id<MTLSharedEvent>)event;
@end

#endif  // HOSTMETAL_SRC_EVENT_H_
