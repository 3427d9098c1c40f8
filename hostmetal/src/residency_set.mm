// MTLResidencySet.
#include "hostmetal/src/residency_set.h"

@implementation MTLResidencySetDescriptor
- (void)dealloc {
  [_label release];
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLResidencySetDescriptor* copy = [[MTLResidencySetDescriptor alloc] init];
  [copy setLabel:_label];
  [copy setInitialCapacity:_initialCapacity];
  return copy;
}
@synthesize label = _label;
@synthesize initialCapacity = _initialCapacity;
@end

@implementation HMResidencySet
- (id)initWithDevice:(HMDevice*)device descriptor:(MTLResidencySetDescriptor*)descriptor {
  self = [super init];
  if (self) {
    _device = device;
    _setLabel = [[descriptor label] copy];
    _wanted = [[NSMutableSet alloc] init];
    _committed = [[NSSet alloc] init];
  }
  return self;
}
- (void)dealloc {
  [_setLabel release];
  [_wanted release];
  [_committed release];
  [super dealloc];
}
- (id<MTLDevice>)device {
  return _device;
}
- (NSString*)label {
  return _setLabel;
}
- (NSSet*)newCommitted {
  @synchronized(self) {
    return [_committed retain];
  }
}
- (uint64_t)allocatedSize {
  uint64_t size = 0;
  NSSet* committed = [[self newCommitted] autorelease];
  for (id<MTLAllocation> allocation in committed) size += [allocation allocatedSize];
  return size;
}
- (NSArray*)allAllocations {
  @synchronized(self) {
    return [_wanted allObjects];
  }
}
- (NSUInteger)allocationCount {
  @synchronized(self) {
    return [_wanted count];
  }
}
- (void)requestResidency {
}
- (void)endResidency {
}
- (void)addAllocation:(id<MTLAllocation>)allocation {
  [self addAllocations:&allocation count:1];
}
- (void)addAllocations:(const id<MTLAllocation>[])allocations count:(NSUInteger)count {
  @synchronized(self) {
    for (NSUInteger i = 0; i < count; ++i) {
      if (allocations[i]) [_wanted addObject:allocations[i]];
    }
  }
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
  [self removeAllocations:&allocation count:1];
}
- (void)removeAllocations:(const id<MTLAllocation>[])allocations count:(NSUInteger)count {
  @synchronized(self) {
    for (NSUInteger i = 0; i < count; ++i) {
      if (allocations[i]) [_wanted removeObject:allocations[i]];
    }
  }
}
- (void)removeAllAllocations {
  @synchronized(self) {
    [_wanted removeAllObjects];
  }
}
- (BOOL)containsAllocation:(id<MTLAllocation>)allocation {
  @synchronized(self) {
    return allocation && [_wanted containsObject:allocation];
  }
}
- (void)commit {
  NSSet* before;
  @synchronized(self) {
    before = _committed;
    _committed = [_wanted copy];
  }
  [before release];
}
@end

namespace hostmetal {

HMResidencySet* ResidencySetOf(HMDevice* device, id object) {
  auto* set = (HMResidencySet*)object;
  return [set isKindOfClass:HM_CLASS(HMResidencySet)] && set->_device == device ? set : nil;
}

}  // namespace hostmetal
