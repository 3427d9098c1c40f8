// Functions that a pipeline's kernel may call through tables.
#ifndef HOSTMETAL_MTLLINKEDFUNCTIONS_H_
#define HOSTMETAL_MTLLINKEDFUNCTIONS_H_

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLFunction;

// Groups are hints, which change nothing here.
MTL_EXPORT
@interface MTLLinkedFunctions : NSObject <NSCopying> {
 @private
  NSArray<id<MTLFunction>>* _functions;
  NSArray<id<MTLFunction>>* _binaryFunctions;
  NSArray<id<MTLFunction>>* _privateFunctions;
  NSDictionary<NSString*, NSArray<id<MTLFunction>>*>* _groups;
}
+ (MTLLinkedFunctions*)linkedFunctions;
@property(nullable, copy, nonatomic) NSArray<id<MTLFunction>>* functions;
@property(nullable, copy, nonatomic) NSArray<id<MTLFunction>>* binaryFunctions;
// Those that no table may have.
@property(nullable, copy, nonatomic) NSArray<id<MTLFunction>>* privateFunctions;
@property(nullable, copy, nonatomic) NSDictionary<NSString*, NSArray<id<MTLFunction>>*>* groups;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLLINKEDFUNCTIONS_H_
