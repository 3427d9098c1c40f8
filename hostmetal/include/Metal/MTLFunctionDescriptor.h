// A function's name and constants in one object.
#ifndef HOSTMETAL_MTLFUNCTIONDESCRIPTOR_H_
#define HOSTMETAL_MTLFUNCTIONDESCRIPTOR_H_

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

@class MTLFunctionConstantValues;
@protocol MTLBinaryArchive;

typedef NS_OPTIONS(NSUInteger, MTLFunctionOptions) {
  MTLFunctionOptionNone = 0,
  MTLFunctionOptionCompileToBinary = 1 << 0,
  MTLFunctionOptionStoreFunctionInMetalPipelinesScript = 1 << 1,
};

MTL_EXPORT
@interface MTLFunctionDescriptor : NSObject <NSCopying> {
 @private
  NSString* _name;
  NSString* _specializedName;
  MTLFunctionConstantValues* _constantValues;
  MTLFunctionOptions _options;
  NSArray<id<MTLBinaryArchive>>* _binaryArchives;
}
+ (MTLFunctionDescriptor*)functionDescriptor;
@property(nullable, copy, nonatomic) NSString* name;
// The function's `name` where given.
@property(nullable, copy, nonatomic) NSString* specializedName;
@property(nullable, copy, nonatomic) MTLFunctionConstantValues* constantValues;
@property(nonatomic) MTLFunctionOptions options;
// Taken, without effect: a function gets its code with a pipeline, whose descriptor has archives, too.
@property(nullable, copy, nonatomic) NSArray<id<MTLBinaryArchive>>* binaryArchives;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLFUNCTIONDESCRIPTOR_H_
