// Counters: the time at the start and the end of a pass, written by the device.
#ifndef HOSTMETAL_MTLCOUNTERS_H_
#define HOSTMETAL_MTLCOUNTERS_H_

#import <Metal/MTLDefines.h>
#import <Metal/MTLResource.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

typedef NSString* MTLCommonCounter;
typedef NSString* MTLCommonCounterSet;
MTL_EXTERN MTLCommonCounter const MTLCommonCounterTimestamp;
// The only set that this device has.
MTL_EXTERN MTLCommonCounterSet const MTLCommonCounterSetTimestamp;

// On the clock of sampleTimestamps:gpuTimestamp:, here nanoseconds of CLOCK_MONOTONIC.
typedef struct {
  uint64_t timestamp;
} MTLCounterResultTimestamp;

// The value of a sample that was not taken.
static const uint64_t MTLCounterErrorValue = ~(uint64_t)0;
static const NSUInteger MTLCounterDontSample = NSUIntegerMax;

MTL_EXTERN NSErrorDomain const MTLCounterErrorDomain;

typedef NS_ENUM(NSInteger, MTLCounterSampleBufferError) {
  MTLCounterSampleBufferErrorOutOfMemory = 0,
  MTLCounterSampleBufferErrorInvalid = 1,
  MTLCounterSampleBufferErrorInternal = 2,
};

@protocol MTLCounter <NSObject>
@property(readonly, copy) NSString* name;
@end

@protocol MTLCounterSet <NSObject>
@property(readonly, copy) NSString* name;
@property(readonly, copy) NSArray<id<MTLCounter>>* counters;
@end

MTL_EXPORT
@interface MTLCounterSampleBufferDescriptor : NSObject <NSCopying> {
 @private
  id<MTLCounterSet> _counterSet;
  NSString* _label;
  MTLStorageMode _storageMode;
  NSUInteger _sampleCount;
}
@property(readwrite, retain, nullable) id<MTLCounterSet> counterSet;
@property(readwrite, copy) NSString* label;
// Shared; no other is to be had.
@property(readwrite, nonatomic) MTLStorageMode storageMode;
@property(readwrite, nonatomic) NSUInteger sampleCount;
@end

@protocol MTLCounterSampleBuffer <NSObject>
@property(readonly) id<MTLDevice> device;
@property(readonly) NSString* label;
@property(readonly) NSUInteger sampleCount;
// MTLCounterResultTimestamp after MTLCounterResultTimestamp; nil outside of the buffer.
- (nullable NSData*)resolveCounterRange:(NSRange)range;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLCOUNTERS_H_
