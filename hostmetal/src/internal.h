// The classes behind Metal's protocols, for the files of hostmetal/src alone.
#ifndef HOSTMETAL_SRC_INTERNAL_H_
#define HOSTMETAL_SRC_INTERNAL_H_

#import <Metal/Metal.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hostmetal/src/command_list.h"
#include "hostmetal/src/driver.h"
#include "hostmetal/src/object.h"
#include "hostmetal/src/sync.h"

@class HMBuffer;
@class HMCommandBuffer;

namespace hostmetal {

struct QueueState;
struct HeapState;
struct CommandBufferState;

NSString* ToNSString(const std::string& text);
std::string ToString(NSString* text);
NSError* MakeError(NSString* domain, const Failure& failure);
// Stores an autoreleased error where `error` is wanted; returns nil for the caller to return.
id Refuse(NSError** error, NSString* domain, int code, const std::string& message);

// The parts of a resource's options.
inline MTLStorageMode StorageMode(MTLResourceOptions options) {
  return MTLStorageMode((options & MTLResourceStorageModeMask) >> MTLResourceStorageModeShift);
}
inline MTLCPUCacheMode CpuCacheMode(MTLResourceOptions options) {
  return MTLCPUCacheMode((options & MTLResourceCPUCacheModeMask) >> MTLResourceCPUCacheModeShift);
}
inline MTLHazardTrackingMode HazardTrackingMode(MTLResourceOptions options) {
  return MTLHazardTrackingMode((options & MTLResourceHazardTrackingModeMask) >>
                               MTLResourceHazardTrackingModeShift);
}
inline MTLResourceOptions WithStorageMode(MTLResourceOptions options, MTLStorageMode mode) {
  return (options & ~MTLResourceStorageModeMask) | (mode << MTLResourceStorageModeShift);
}
inline MTLResourceOptions WithCpuCacheMode(MTLResourceOptions options, MTLCPUCacheMode mode) {
  return (options & ~MTLResourceCPUCacheModeMask) | (mode << MTLResourceCPUCacheModeShift);
}
inline MTLResourceOptions WithHazardTrackingMode(MTLResourceOptions options,
                                                 MTLHazardTrackingMode mode) {
  return (options & ~MTLResourceHazardTrackingModeMask) |
         (mode << MTLResourceHazardTrackingModeShift);
}

// Where an argument's entry of metallib_launch.buffers lies; not for threadgroup memory.
inline uint32_t Slot(const metallib_argument& a) {
  return a.kind == METALLIB_TEXTURE   ? METALLIB_FIRST_TEXTURE + a.index
         : a.kind == METALLIB_SAMPLER ? METALLIB_FIRST_SAMPLER + a.index
                                      : a.index;
}
// Of "texture2d<float, access::read>": the type, and the component's MSL name.
MTLTextureType TextureType(const char* type_name);
std::string TextureComponent(const char* type_name);

// Where a resource's memory belongs.
inline Storage StorageOf(MTLResourceOptions options) {
  return StorageMode(options) == MTLStorageModePrivate           ? Storage::kPrivate
         : CpuCacheMode(options) == MTLCPUCacheModeWriteCombined ? Storage::kUpload
                                                                 : Storage::kShared;
}

struct ConstantValue {
  MTLDataType type;
  std::array<uint8_t, 16> bytes;
};
// Bytes of one value in MSL's layout; 0 for types that cannot be function constants.
size_t ConstantSize(MTLDataType type);

struct LibraryState {
  std::shared_ptr<Module> module;
  std::map<std::string, const metallib_kernel*> kernels;
  NSUInteger max_threads = 0;  // MTLCompileOptions' limit, or 0
};

}  // namespace hostmetal

struct HMConstantValues {
  std::map<NSUInteger, hostmetal::ConstantValue> by_index;
  std::map<std::string, hostmetal::ConstantValue> by_name;
};

// Object with a label that any thread may read and set.
@interface HMLabelled : HMObject {
  NSString* _label;
}
@property(copy, atomic) NSString* label;
@end

@interface HMDevice : HMObject <MTLDevice> {
 @public
  hostmetal::Driver* _driver;
  std::atomic<uint64_t> _allocated;
  BOOL _validate;  // METAL_DEVICE_WRAPPER_TYPE=1
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                             options:(MTLResourceOptions)options
                              zeroed:(BOOL)zeroed;
- (HMBuffer*)newBufferOver:(void*)pointer
                    length:(NSUInteger)length
                   options:(MTLResourceOptions)options;
@end
// The default device, which HOSTMETAL_DEVICE can name; nil, with a sentence on stderr, where it is
// not there.
HMDevice* HMTheDevice();

@interface HMHeap : HMLabelled <MTLHeap> {
 @public
  HMDevice* _device;
  hostmetal::HeapState* _state;
}
- (id)initWithDevice:(HMDevice*)device
          allocation:(hostmetal::Allocation)allocation
          descriptor:(MTLHeapDescriptor*)descriptor;
// Gives a buffer's room back.
- (void)freeOffset:(NSUInteger)offset;
@end

@interface HMBuffer : HMLabelled <MTLBuffer> {
 @public
  HMDevice* _device;
  hostmetal::Allocation _allocation;
  NSUInteger _length;
  MTLResourceOptions _options;
  BOOL _borrowed;  // bytes of newBufferWithBytesNoCopy:
  void (^_deallocator)(void*, NSUInteger);
  HMHeap* _heap;  // whose memory it is, or nil
  NSUInteger _heapOffset;
  std::atomic<NSUInteger> _purgeable;
  std::atomic<bool> _aliasable;
  NSMutableArray* _markers;
}
@end

// A box of pixels in a texture, and how the bytes beside it lie.
struct HMPixels {
  char* texture;
  size_t texture_row, texture_image;
  size_t row_bytes, rows, images;
  size_t row_stride, image_stride;
};

@interface HMTexture : HMLabelled <MTLTexture> {
 @public
  HMDevice* _device;
  HMBuffer* _memory;
  metallib_texture _layout;  // what kernels get; never changed
  MTLTextureType _textureType;
  MTLPixelFormat _pixelFormat;
  MTLTextureUsage _usage;
  MTLResourceOptions _options;
  HMTexture* _parent;
  NSUInteger _parentLevel, _parentSlice;
  BOOL _overBuffer;
  NSUInteger _bufferOffset;
}
// nil where the device has no such texture, or no memory.
+ (HMTexture*)newOn:(HMDevice*)device descriptor:(MTLTextureDescriptor*)descriptor;
+ (HMTexture*)newOver:(HMBuffer*)buffer
           descriptor:(MTLTextureDescriptor*)descriptor
               offset:(NSUInteger)offset
          bytesPerRow:(NSUInteger)bytesPerRow;
// NO, and in `what` the reason, where the region is not in the texture.
- (BOOL)locate:(MTLRegion)region
          level:(NSUInteger)level
          slice:(NSUInteger)slice
      rowStride:(NSUInteger)rowStride
    imageStride:(NSUInteger)imageStride
         pixels:(HMPixels*)pixels
           what:(std::string*)what;
@end

@interface HMSamplerState : HMObject <MTLSamplerState> {
 @public
  HMDevice* _device;
  NSString* _samplerLabel;
  metallib_sampler _sampler;
}
- (id)initWithDevice:(HMDevice*)device descriptor:(MTLSamplerDescriptor*)descriptor;
@end

@interface HMLibrary : HMLabelled <MTLLibrary> {
 @public
  HMDevice* _device;
  hostmetal::LibraryState* _state;
}
- (id)initWithDevice:(HMDevice*)device module:(std::shared_ptr<hostmetal::Module>)module;
@end

@interface HMFunction : HMLabelled <MTLFunction> {
 @public
  HMDevice* _device;
  std::shared_ptr<hostmetal::Module>* _module;
  const metallib_kernel* _entry;
  std::vector<metallib_constant_value>* _constants;
  NSString* _specializedName;
  MTLFunctionOptions _functionOptions;
  NSUInteger _maxThreads;  // of the library's compile options, or 0
}
@end

@interface HMComputePipelineState : HMObject <MTLComputePipelineState> {
 @public
  HMDevice* _device;
  NSString* _pipelineLabel;
  hostmetal::Kernel* _kernel;
  uint32_t _bindingCount;  // entries that the kernel needs of metallib_launch.buffers
  BOOL _multipleOfWidth;
}
- (id)initWithFunction:(HMFunction*)function
            maxThreads:(NSUInteger)maxThreads
       multipleOfWidth:(BOOL)multipleOfWidth
                 label:(NSString*)label;
@end

@interface MTLComputePipelineReflection (Hostmetal)
- (id)initWithPipeline:(HMComputePipelineState*)pipeline;
@end

@interface HMFence : HMLabelled <MTLFence> {
 @public
  HMDevice* _device;
}
@end

@interface HMEvent : HMLabelled <MTLEvent> {
 @public
  HMDevice* _device;  // nil for a shared event
  hostmetal::EventState* _event;
}
- (id)initWithDevice:(HMDevice*)device;
@end
@interface HMSharedEvent : HMEvent <MTLSharedEvent>
@end

@interface HMCommandQueue : HMLabelled <MTLCommandQueue> {
 @public
  HMDevice* _device;
  std::shared_ptr<hostmetal::QueueState>* _state;
}
- (id)initWithDevice:(HMDevice*)device maxCommandBufferCount:(NSUInteger)count;
@end

@interface HMCommandBuffer : HMLabelled <MTLCommandBuffer> {
 @public
  HMCommandQueue* _queue;
  hostmetal::CommandBufferState* _state;
}
- (id)initWithQueue:(HMCommandQueue*)queue
            retains:(BOOL)retains
       errorOptions:(MTLCommandBufferErrorOption)options;
@end

@interface HMEncoder : HMLabelled <MTLCommandEncoder> {
 @public
  HMCommandBuffer* _buffer;
  uint32_t _number;
  BOOL _ended;
}
- (id)initWithCommandBuffer:(HMCommandBuffer*)buffer;
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
@end

struct HMComputeState;
@interface HMComputeCommandEncoder : HMEncoder <MTLComputeCommandEncoder> {
  MTLDispatchType _dispatchType;
  HMComputeState* _compute;
}
- (id)initWithCommandBuffer:(HMCommandBuffer*)buffer dispatchType:(MTLDispatchType)dispatchType;
@end

@interface HMBlitCommandEncoder : HMEncoder <MTLBlitCommandEncoder>
@end

namespace hostmetal {

struct EncoderInfo {
  std::string label;
  std::vector<std::string> signposts;
};

struct CommandBufferState {
  CommandList list;
  std::vector<id> resources;  // retained until the command buffer has completed
  bool retains = true;
  MTLCommandBufferErrorOption error_options = MTLCommandBufferErrorOptionNone;
  HMEncoder* open_encoder = nil;  // not retained; it retains the command buffer
  std::vector<EncoderInfo> encoders;
  std::vector<std::string> debug_groups;

  std::atomic<uint32_t> status{MTLCommandBufferStatusNotEnqueued};
  std::atomic<bool> committed{false};
  std::atomic<bool> run{false};  // given to the device; it may not be done
  bool holds_slot = true;
  std::atomic<uint64_t> kernel_start{0}, kernel_end{0}, gpu_start{0}, gpu_end{0};  // ns
  WaitWord scheduled;
  WaitWord done;

  std::mutex mutex;  // guards what follows
  std::vector<MTLCommandBufferHandler> scheduled_handlers;
  std::vector<MTLCommandBufferHandler> completed_handlers;
  bool scheduled_sent = false;
  bool completed_sent = false;
  Failure failure;
  uint32_t failed_encoder = 0;
  NSError* error = nil;

  // Keeps a resource alive until completion.
  void Use(id resource) {
    if (retains) resources.push_back([resource retain]);
  }
};

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_INTERNAL_H_
