// Tables of functions that a kernel calls by their number.
#ifndef HOSTMETAL_MTLVISIBLEFUNCTIONTABLE_H_
#define HOSTMETAL_MTLVISIBLEFUNCTIONTABLE_H_

#import <Metal/MTLDefines.h>
#import <Metal/MTLResource.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLFunctionHandle;

MTL_EXPORT
@interface MTLVisibleFunctionTableDescriptor : NSObject <NSCopying> {
 @private
  NSUInteger _functionCount;
}
+ (MTLVisibleFunctionTableDescriptor*)visibleFunctionTableDescriptor;
@property(nonatomic) NSUInteger functionCount;
@end

// Entries that no function was set to fault where they are called.
@protocol MTLVisibleFunctionTable <MTLResource>
- (void)setFunction:(nullable id<MTLFunctionHandle>)function atIndex:(NSUInteger)index;
- (void)setFunctions:(const id<MTLFunctionHandle> _Nullable[_Nonnull])functions
           withRange:(NSRange)range;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLVISIBLEFUNCTIONTABLE_H_
