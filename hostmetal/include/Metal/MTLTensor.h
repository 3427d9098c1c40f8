// Tensors: arrays of up to 16 dimensions, the innermost first. A kernel's tensor_handle is a tensor's gpuResourceID in an argument
// buffer. On devices of processors; GPUs make none.
#ifndef HOSTMETAL_MTLTENSOR_H_
#define HOSTMETAL_MTLTENSOR_H_

#import <Metal/MTLArgument.h>
#import <Metal/MTLResource.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

#define MTL_TENSOR_MAX_RANK 16

@protocol MTLBuffer;

MTL_EXTERN NSErrorDomain const MTLTensorDomain;

typedef NS_ENUM(NSInteger, MTLTensorError) {
  MTLTensorErrorNone = 0,
  MTLTensorErrorInternalError = 1,
  MTLTensorErrorInvalidDescriptor = 2,
};

typedef NS_ENUM(NSInteger, MTLTensorDataType) {
  MTLTensorDataTypeNone = MTLDataTypeNone,
  MTLTensorDataTypeFloat32 = MTLDataTypeFloat,
  MTLTensorDataTypeFloat16 = MTLDataTypeHalf,
  MTLTensorDataTypeBFloat16 = MTLDataTypeBFloat,
  MTLTensorDataTypeInt8 = MTLDataTypeChar,
  MTLTensorDataTypeUInt8 = MTLDataTypeUChar,
  MTLTensorDataTypeInt16 = MTLDataTypeShort,
  MTLTensorDataTypeUInt16 = MTLDataTypeUShort,
  MTLTensorDataTypeInt32 = MTLDataTypeInt,
  MTLTensorDataTypeUInt32 = MTLDataTypeUInt,
};

typedef NS_OPTIONS(NSUInteger, MTLTensorUsage) {
  MTLTensorUsageCompute = 1 << 0,
  MTLTensorUsageRender = 1 << 1,
  MTLTensorUsageMachineLearning = 1 << 2,
};

// A number for each dimension.
MTL_EXPORT
@interface MTLTensorExtents : NSObject {
 @private
  NSUInteger _rank;
  NSInteger _values[MTL_TENSOR_MAX_RANK];
}
// nil for more than 16 dimensions. Without `values`, all are 0.
- (nullable instancetype)initWithRank:(NSUInteger)rank values:(const NSInteger* _Nullable)values;
@property(readonly) NSUInteger rank;
// -1 where there is no such dimension.
- (NSInteger)extentAtDimensionIndex:(NSUInteger)dimensionIndex;
@end

MTL_EXPORT
@interface MTLTensorDescriptor : NSObject <NSCopying> {
 @private
  MTLTensorExtents *_dimensions, *_strides;
  MTLTensorDataType _dataType;
  MTLTensorUsage _usage;
  MTLResourceOptions _resourceOptions;
}
// One dimension of size 1 at first.
@property(readwrite, copy, nonatomic) MTLTensorExtents* dimensions;
// In elements, of tensors over buffers; nil: one element lies behind the other.
@property(nullable, readwrite, copy, nonatomic) MTLTensorExtents* strides;
@property(readwrite, nonatomic) MTLTensorDataType dataType;
@property(readwrite, nonatomic) MTLTensorUsage usage;
@property(readwrite, nonatomic) MTLResourceOptions resourceOptions;
@property(readwrite, nonatomic) MTLCPUCacheMode cpuCacheMode;
@property(readwrite, nonatomic) MTLStorageMode storageMode;
@property(readwrite, nonatomic) MTLHazardTrackingMode hazardTrackingMode;
@end

@protocol MTLTensor <MTLResource>
@property(readonly) MTLResourceID gpuResourceID;
// The buffer below; nil, 0 and nil without one.
@property(nullable, readonly) id<MTLBuffer> buffer;
@property(readonly) NSUInteger bufferOffset;
@property(nullable, readonly) MTLTensorExtents* strides;
@property(readonly) MTLTensorExtents* dimensions;
@property(readonly) MTLTensorDataType dataType;
@property(readonly) MTLTensorUsage usage;
// `strides` are those of `bytes`, in elements.
- (void)replaceSliceOrigin:(MTLTensorExtents*)sliceOrigin
           sliceDimensions:(MTLTensorExtents*)sliceDimensions
                 withBytes:(const void*)bytes
                   strides:(MTLTensorExtents*)strides;
- (void)getBytes:(void*)bytes
            strides:(MTLTensorExtents*)strides
    fromSliceOrigin:(MTLTensorExtents*)sliceOrigin
    sliceDimensions:(MTLTensorExtents*)sliceDimensions;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLTENSOR_H_
