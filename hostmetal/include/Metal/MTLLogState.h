// Messages of shaders: os_log of libraries compiled with enableLogging.
#ifndef HOSTMETAL_MTLLOGSTATE_H_
#define HOSTMETAL_MTLLOGSTATE_H_

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSInteger, MTLLogLevel) {
  MTLLogLevelUndefined,
  MTLLogLevelDebug,
  MTLLogLevelInfo,
  MTLLogLevelNotice,
  MTLLogLevelError,
  MTLLogLevelFault,
};

// A log buffer, which all command buffers of a state share. A command buffer's messages are taken out
// when it completes, before its completed handlers. Without a handler they go to the standard error.
@protocol MTLLogState <NSObject>
- (void)addLogHandler:(void (^)(NSString* _Nullable subSystem, NSString* _Nullable category,
                                MTLLogLevel logLevel, NSString* message))block;
@end

MTL_EXPORT
@interface MTLLogStateDescriptor : NSObject <NSCopying> {
 @private
  MTLLogLevel _level;
  NSInteger _bufferSize;
}
// Messages below it are not written; MTLLogLevelUndefined, the default, is as MTLLogLevelDebug.
@property(assign, readwrite) MTLLogLevel level;
// Bytes: 1 KB to 1 GB, 1 MB by default.
@property(assign, readwrite) NSInteger bufferSize;
@end

MTL_EXTERN NSErrorDomain const MTLLogStateErrorDomain;

typedef NS_ENUM(NSUInteger, MTLLogStateError) {
  MTLLogStateErrorInvalidSize = 1,
  MTLLogStateErrorInvalid = 2,
};

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLLOGSTATE_H_
