// Shared by resources and heaps: they take memory.
#ifndef HOSTMETAL_MTLALLOCATION_H_
#define HOSTMETAL_MTLALLOCATION_H_

#import <Metal/MTLDefines.h>

@protocol MTLAllocation <NSObject>
@property(readonly) NSUInteger allocatedSize;
@end

#endif  // HOSTMETAL_MTLALLOCATION_H_
