// Reference counting of HMObject.
#include "hostmetal/src/object.h"

#ifdef HOSTMETAL_COUNT_OBJECTS
// For leak checks: LeakSanitizer cannot tell our objects from libobjc's tables, which it has to
// ignore.
static std::atomic<long> live_objects{0};
extern "C" long hostmetal_live_objects(void) { return live_objects.load(); }
#endif

@implementation HMObject

#ifdef HOSTMETAL_COUNT_OBJECTS
+ (id)allocWithZone:(NSZone*)zone {
  ++live_objects;
  return [super allocWithZone:zone];
}
- (void)dealloc {
  --live_objects;
  [super dealloc];
}
#endif

- (id)hm_immortal {
  _extra_references.store(INT32_MAX / 2, std::memory_order_relaxed);
  return self;
}

- (id)retain {
  _extra_references.fetch_add(1, std::memory_order_relaxed);
  return self;
}

- (oneway void)release {
  if (hostmetal::WeakInUse()) {
    if (hostmetal::DropWeakly(self, &_extra_references)) [self dealloc];
    return;
  }
  if (_extra_references.fetch_sub(1, std::memory_order_acq_rel) == 0) [self dealloc];
}

- (NSUInteger)retainCount {
  return _extra_references.load(std::memory_order_relaxed) + 1;
}

@end

@implementation HMLabelled
- (NSString*)label {
  if (!_labelled.load(std::memory_order_acquire)) return nil;
  @synchronized(self) {
    return [[_label retain] autorelease];
  }
}
- (void)setLabel:(NSString*)label {
  NSString* copy = [label copy];
  @synchronized(self) {
    std::swap(copy, _label);
    _labelled.store(true, std::memory_order_release);
  }
  [copy release];
}
- (void)dealloc {
  [_label release];
  [super dealloc];
}
@end
