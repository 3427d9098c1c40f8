// Values for [[function_constant(n)]] variables.
#ifndef HOSTMETAL_MTLFUNCTIONCONSTANTVALUES_H_
#define HOSTMETAL_MTLFUNCTIONCONSTANTVALUES_H_

#import <Metal/MTLArgument.h>

NS_ASSUME_NONNULL_BEGIN

MTL_EXPORT
@interface MTLFunctionConstantValues : NSObject <NSCopying> {
 @private
  struct HMConstantValues* _values;
}

- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index;
- (void)setConstantValues:(const void*)values type:(MTLDataType)type withRange:(NSRange)range;
- (void)setConstantValue:(const void*)value type:(MTLDataType)type withName:(NSString*)name;
- (void)reset;

@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLFUNCTIONCONSTANTVALUES_H_
