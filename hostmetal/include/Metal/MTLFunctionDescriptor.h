// A function's name and constants in one object.
#ifndef HOSTMETAL_MTLFUNCTIONDESCRIPTOR_H_
#define HOSTMETAL_MTLFUNCTIONDESCRIPTOR_H_

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

@class MTLFunctionConstantValues;

typedef NS_OPTIONS(NSUInteger, MTLFunctionOptions) {
  MTLFunctionOptionNone = 0,
  MTLFunctionOptionCompileToBinary = 1 << 0,
};

MTL_EXPORT
@interface MTLFunctionDescriptor : NSObject <NSCopying> {
 @private
  NSString* _name;
  NSString* _specializedName;
  MTLFunctionConstantValues* _constantValues;
  MTLFunctionOptions _options;
}
+ (MTLFunctionDescriptor*)functionDescriptor;
@property(nullable, copy, nonatomic) NSString* name;
// The function's `name` where given.
@property(nullable, copy, nonatomic) NSString* specializedName;
@property(nullable, copy, nonatomic) MTLFunctionConstantValues* constantValues;
@property(nonatomic) MTLFunctionOptions options;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLFUNCTIONDESCRIPTOR_H_
