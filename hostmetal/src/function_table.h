// MTLLinkedFunctions, MTLFunctionHandle and MTLVisibleFunctionTable.
#ifndef HOSTMETAL_SRC_FUNCTION_TABLE_H_
#define HOSTMETAL_SRC_FUNCTION_TABLE_H_

#import <Metal/Metal.h>

#include <string>
#include <vector>

#include "hostmetal/src/buffer.h"
#include "hostmetal/src/library.h"
#include "hostmetal/src/pipeline.h"

@interface HMFunctionHandle : HMObject <MTLFunctionHandle> {
 @public
  HMDevice* _device;
  HMComputePipelineState* _pipeline;  // not retained, as it holds the handle; to tell whose it is
  hostmetal::Kernel* _function;
}
@end

// Its entries are addresses in a buffer's memory, which kernels read.
@interface HMVisibleFunctionTable : HMBuffer <MTLVisibleFunctionTable> {
 @public
  HMComputePipelineState* _pipeline;
}
// nil, and a sentence on the standard error, for a pipeline or a size that cannot have one.
+ (HMVisibleFunctionTable*)newFor:(HMComputePipelineState*)pipeline
                       descriptor:(MTLVisibleFunctionTableDescriptor*)descriptor;
@end

namespace hostmetal {

// Makes the handles of a pipeline's linked functions. The error in them, or a code of 0.
Failure Link(HMComputePipelineState* pipeline, NSArray<id<MTLFunction>>* functions,
             NSMutableArray* handles);
// All of them that tables may have.
NSArray<id<MTLFunction>>* TableFunctions(MTLLinkedFunctions* linked);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_FUNCTION_TABLE_H_
