// Events order command buffers across queues; shared events also signal and notify the CPU.
#ifndef HOSTMETAL_MTLEVENT_H_
#define HOSTMETAL_MTLEVENT_H_

#import <Metal/MTLDefines.h>
#include <dispatch/dispatch.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@protocol MTLEvent <NSObject>
// nil for a shared event.
@property(nullable, readonly) id<MTLDevice> device;
@property(nullable, copy, atomic) NSString* label;
@end

MTL_EXPORT
@interface MTLSharedEventListener : NSObject {
 @private
  dispatch_queue_t _dispatchQueue;
}
- (instancetype)init;
- (instancetype)initWithDispatchQueue:(dispatch_queue_t)dispatchQueue;
@property(nonnull, readonly) dispatch_queue_t dispatchQueue;
@end

@protocol MTLSharedEvent;

// A handle from which other code of this process makes the event. There is no XPC: a coder is
// refused with an exception.
MTL_EXPORT
@interface MTLSharedEventHandle : NSObject <NSSecureCoding> {
 @private
  id _event;
}
@property(nullable, readonly) NSString* label;
@end

typedef void (^MTLSharedEventNotificationBlock)(id<MTLSharedEvent>, uint64_t value);

@protocol MTLSharedEvent <MTLEvent>
- (void)notifyListener:(MTLSharedEventListener*)listener
               atValue:(uint64_t)value
                 block:(MTLSharedEventNotificationBlock)block;
- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds;
- (MTLSharedEventHandle*)newSharedEventHandle;
@property(readwrite) uint64_t signaledValue;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLEVENT_H_
