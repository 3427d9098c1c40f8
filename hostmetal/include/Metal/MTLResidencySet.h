// Residency sets: resources that a queue's kernels may reach without being bound. The device's memory
// is always resident here; a set keeps its members alive.
#ifndef HOSTMETAL_MTLRESIDENCYSET_H_
#define HOSTMETAL_MTLRESIDENCYSET_H_

#import <Metal/MTLAllocation.h>
#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

MTL_EXPORT
@interface MTLResidencySetDescriptor : NSObject <NSCopying> {
 @private
  NSString* _label;
  NSUInteger _initialCapacity;
}
@property(nullable, copy, nonatomic) NSString* label;
@property(nonatomic) NSUInteger initialCapacity;
@end

@protocol MTLResidencySet <NSObject>
@property(readonly) id<MTLDevice> device;
@property(nullable, readonly) NSString* label;
// The size of the committed allocations.
@property(readonly) uint64_t allocatedSize;
// The counts below change at once with additions and removals; these take effect with commit.
@property(readonly) NSArray<id<MTLAllocation>>* allAllocations;
@property(readonly) NSUInteger allocationCount;

- (void)requestResidency;
- (void)endResidency;
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)addAllocations:(const id<MTLAllocation> _Nonnull[_Nonnull])allocations
                 count:(NSUInteger)count;
- (void)removeAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllocations:(const id<MTLAllocation> _Nonnull[_Nonnull])allocations
                    count:(NSUInteger)count;
- (void)removeAllAllocations;
- (BOOL)containsAllocation:(id<MTLAllocation>)anAllocation;
- (void)commit;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLRESIDENCYSET_H_
