// The one class of MetalPerformanceShaders here is MPSCommandBuffer, a command buffer of Metal's that can be committed
// in parts. The framework's kernels are not there: their names are an error of the compiler that says so.
// hostmetal/src/mps_command_buffer.mm.
#ifndef HOSTMETAL_METALPERFORMANCESHADERS_H_
#define HOSTMETAL_METALPERFORMANCESHADERS_H_

#import <Metal/Metal.h>

NS_ASSUME_NONNULL_BEGIN

// NO: none of the framework's kernels runs on a device of hostmetal.
MTL_EXTERN BOOL MPSSupportsMTLDevice(id<MTLDevice> _Nullable device);

MTL_EXPORT
@interface MPSCommandBuffer : NSObject <MTLCommandBuffer> {
 @private
  id<MTLCommandBuffer> _commandBuffer;
}
// The one that is encoded into now; commitAndContinue makes another.
@property(readonly, nonatomic, retain) id<MTLCommandBuffer> commandBuffer;
// Where commandBuffer is an MPSCommandBuffer, that one's, and so on.
@property(readonly, nonatomic, retain) id<MTLCommandBuffer> rootCommandBuffer;

+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue;
- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
- (instancetype)init __attribute__((unavailable));

// Commits the encoded work, and goes on with a new command buffer of the same queue.
- (void)commitAndContinue;
// Memory for the framework's kernels, of which there are none: nothing happens.
- (void)prefetchHeapForWorkloadSize:(size_t)size;
@end

#define HOSTMETAL_NO_MPS                                                                  \
  __attribute__((unavailable("hostmetal has MPSCommandBuffer of MetalPerformanceShaders " \
                             "and none of its kernels; write a kernel in a .metal file")))
#define HOSTMETAL_NO_MPS_CLASS(name)                     \
  HOSTMETAL_NO_MPS MTL_EXPORT @interface name : NSObject \
  @end
HOSTMETAL_NO_MPS_CLASS(MPSKernel)
HOSTMETAL_NO_MPS_CLASS(MPSPredicate)
HOSTMETAL_NO_MPS_CLASS(MPSState)
HOSTMETAL_NO_MPS_CLASS(MPSTemporaryMatrix)
HOSTMETAL_NO_MPS_CLASS(MPSTemporaryImage)
HOSTMETAL_NO_MPS_CLASS(MPSTemporaryVector)
HOSTMETAL_NO_MPS_CLASS(MPSTemporaryNDArray)
HOSTMETAL_NO_MPS_CLASS(MPSMatrix)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixDescriptor)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixMultiplication)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixVectorMultiplication)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixSoftMax)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixSum)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixCopy)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixNeuron)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixFullyConnected)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixFindTopK)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixDecompositionCholesky)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixDecompositionLU)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixSolveCholesky)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixSolveLU)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixSolveTriangular)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixRandomPhilox)
HOSTMETAL_NO_MPS_CLASS(MPSMatrixRandomMTGP32)
HOSTMETAL_NO_MPS_CLASS(MPSVector)
HOSTMETAL_NO_MPS_CLASS(MPSVectorDescriptor)
HOSTMETAL_NO_MPS_CLASS(MPSNDArray)
HOSTMETAL_NO_MPS_CLASS(MPSNDArrayDescriptor)
HOSTMETAL_NO_MPS_CLASS(MPSNDArrayMatrixMultiplication)
HOSTMETAL_NO_MPS_CLASS(MPSImage)
HOSTMETAL_NO_MPS_CLASS(MPSImageDescriptor)
HOSTMETAL_NO_MPS_CLASS(MPSImageConvolution)
HOSTMETAL_NO_MPS_CLASS(MPSImageGaussianBlur)
HOSTMETAL_NO_MPS_CLASS(MPSImageBox)
HOSTMETAL_NO_MPS_CLASS(MPSImageMedian)
HOSTMETAL_NO_MPS_CLASS(MPSImageSobel)
HOSTMETAL_NO_MPS_CLASS(MPSImageHistogram)
HOSTMETAL_NO_MPS_CLASS(MPSImageBilinearScale)
HOSTMETAL_NO_MPS_CLASS(MPSImageLanczosScale)
HOSTMETAL_NO_MPS_CLASS(MPSImageConversion)
HOSTMETAL_NO_MPS_CLASS(MPSCNNConvolution)
HOSTMETAL_NO_MPS_CLASS(MPSCNNConvolutionDescriptor)
HOSTMETAL_NO_MPS_CLASS(MPSCNNFullyConnected)
HOSTMETAL_NO_MPS_CLASS(MPSCNNSoftMax)
HOSTMETAL_NO_MPS_CLASS(MPSCNNPoolingMax)
HOSTMETAL_NO_MPS_CLASS(MPSCNNPoolingAverage)
HOSTMETAL_NO_MPS_CLASS(MPSNNGraph)
HOSTMETAL_NO_MPS_CLASS(MPSRayIntersector)
HOSTMETAL_NO_MPS_CLASS(MPSTriangleAccelerationStructure)
#undef HOSTMETAL_NO_MPS_CLASS

enum {
  MPSDataTypeFloat32 HOSTMETAL_NO_MPS,
  MPSDataTypeFloat16 HOSTMETAL_NO_MPS,
  MPSDataTypeBFloat16 HOSTMETAL_NO_MPS,
  MPSDataTypeInt8 HOSTMETAL_NO_MPS,
  MPSDataTypeInt16 HOSTMETAL_NO_MPS,
  MPSDataTypeInt32 HOSTMETAL_NO_MPS,
  MPSDataTypeUInt8 HOSTMETAL_NO_MPS,
  MPSDataTypeUInt16 HOSTMETAL_NO_MPS,
  MPSDataTypeUInt32 HOSTMETAL_NO_MPS,
};
#undef HOSTMETAL_NO_MPS

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_METALPERFORMANCESHADERS_H_
