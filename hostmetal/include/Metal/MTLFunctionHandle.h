// A function as a pipeline has it, for tables.
#ifndef HOSTMETAL_MTLFUNCTIONHANDLE_H_
#define HOSTMETAL_MTLFUNCTIONHANDLE_H_

#import <Metal/MTLDefines.h>
#import <Metal/MTLLibrary.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLFunctionHandle <NSObject>
@property(readonly) MTLFunctionType functionType;
@property(readonly) NSString* name;
@property(readonly) id<MTLDevice> device;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLFUNCTIONHANDLE_H_
