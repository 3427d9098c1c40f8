// Encoding on the TF_MetalStream: see encoder.h.

#include "kernels/common/encoder.h"

#import <Foundation/Foundation.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>

#include "kernels/common/platform.h"

namespace metal_ops {
namespace {

// Positions in the grid are 32-bit `uint` in shaders.
constexpr int64_t kMaxGrid = (int64_t{1} << 32) - 1;

// What setBytes takes.
constexpr size_t kMaxBytes = 4096;

// Fills x first, in whole SIMD groups, then y, then z, up to what this pipeline allows.
MTLSize ThreadgroupSize(id<MTLComputePipelineState> pipeline, id<MTLDevice> device,
                        const Grid& grid) {
  const MTLSize limit = [device maxThreadsPerThreadgroup];
  NSUInteger left = [pipeline maxTotalThreadsPerThreadgroup];
  const NSUInteger simd = [pipeline threadExecutionWidth];
  NSUInteger width = std::min<NSUInteger>(left, limit.width);
  const NSUInteger wanted = (static_cast<NSUInteger>(grid.width) + simd - 1) / simd * simd;
  width = std::max<NSUInteger>(1, std::min(width, wanted));
  left /= width;
  const NSUInteger height =
      std::max<NSUInteger>(1, std::min({left, limit.height, static_cast<NSUInteger>(grid.height)}));
  left /= height;
  const NSUInteger depth =
      std::max<NSUInteger>(1, std::min({left, limit.depth, static_cast<NSUInteger>(grid.depth)}));
  return MTLSizeMake(width, height, depth);
}

// What is bound for an empty tensor. No shader touches it, but Metal's validation refuses an index
// left open, and bytes (setBytes) where a shader may write.
id<MTLBuffer> BufferOfNothing(id<MTLDevice> device) {
  static std::mutex mutex;
  static auto* const made = new std::map<const void*, id<MTLBuffer>>();
  const std::lock_guard<std::mutex> lock(mutex);
  id<MTLBuffer>& buffer = (*made)[device];
  if (buffer == nil) {
    buffer = [device newBufferWithLength:16 options:MTLResourceStorageModeShared];
  }
  return buffer;
}

// Nothing may be thrown through dispatch_sync. Whatever was encoded before a failure is harmless
// and still counted.
Status RunOnQueue(id<TF_MetalStream> stream, bool wait,
                  const std::function<Status(Encoder&)>& body) {
  Status status;
  bool used = false;
  @try {
    try {
      Encoder encoder(stream);
      status = body(encoder);
      used = encoder.used();
    } catch (const std::exception& e) {
      status = Internal(e.what());
    }
    if (used && wait) {
      [stream commitAndWait];
    } else if (used) {
      [stream commit];
    }
  } @catch (NSException* e) {
    status = Internal([[e name] UTF8String], ": ", [[e reason] UTF8String]);
  }
  return status;
}

}  // namespace

Encoder::~Encoder() { EndCompute(); }

void Encoder::EndCompute() {
  if (compute_ == nil) return;
  [compute_ endEncoding];
  [compute_ release];
  compute_ = nil;
}

Status Encoder::Dispatch(const Function& function, Grid grid,
                         std::initializer_list<Argument> arguments) {
  if (grid.width == 0 || grid.height == 0 || grid.depth == 0) return Status();
  for (const int64_t count : {grid.width, grid.height, grid.depth}) {
    if (count < 0 || count > kMaxGrid) {
      return InvalidArgument(
          "shader '", function.name, "' would need a grid of ", grid.width, " x ", grid.height,
          " x ", grid.depth,
          " threads, more than Metal's 2^32 - 1 a dimension; use a smaller batch");
    }
  }

  id<MTLCommandBuffer> commands = [stream_ currentCommandBuffer];
  if (commands == nil) return Internal("the stream has no command buffer");
  id<MTLDevice> device = [commands device];
  id<MTLComputePipelineState> pipeline = nil;
  RETURN_IF_ERROR(GetPipeline(device, function, &pipeline));

  // All that can fail comes before the first call on the encoder: a half-encoded dispatch cannot be
  // taken back.
  BufferRef refs[32];
  if (arguments.size() > 31) {
    return Internal("shader '", function.name, "' is given ", arguments.size(),
                    " arguments; Metal has 31 buffer indices");
  }
  int index = 0;
  for (const Argument& argument : arguments) {
    if (argument.tensor != nullptr) {
      RETURN_IF_ERROR(ResolveBuffer(*argument.tensor, &refs[index]));
    } else if (argument.read_back != nullptr) {
      refs[index].buffer = argument.read_back->buffer_;
    } else if (argument.size > kMaxBytes) {
      refs[index].buffer = [[device newBufferWithBytes:argument.bytes
                                                length:argument.size
                                               options:MTLResourceStorageModeShared] autorelease];
    }
    const bool is_bytes = argument.size > 0 && argument.size <= kMaxBytes;
    if (refs[index].buffer == nil && !is_bytes) {
      if (argument.size == 0) refs[index].buffer = BufferOfNothing(device);
      if (refs[index].buffer == nil) {
        return ResourceExhausted("out of device memory: ", argument.size,
                                 " bytes for an argument of shader '", function.name, "'");
      }
    }
    ++index;
  }

  if (compute_ == nil) compute_ = [[commands computeCommandEncoder] retain];
  if (compute_ == nil) return Internal("the command buffer gave no compute encoder");
  used_ = true;
  [compute_ setComputePipelineState:pipeline];
  index = 0;
  for (const Argument& argument : arguments) {
    const NSUInteger at = static_cast<NSUInteger>(index);
    if (refs[index].buffer != nil) {
      [compute_ setBuffer:refs[index].buffer offset:refs[index].offset atIndex:at];
    } else {
      [compute_ setBytes:argument.bytes length:argument.size atIndex:at];
    }
    ++index;
  }
  const MTLSize threads =
      MTLSizeMake(static_cast<NSUInteger>(grid.width), static_cast<NSUInteger>(grid.height),
                  static_cast<NSUInteger>(grid.depth));
  [compute_ dispatchThreads:threads threadsPerThreadgroup:ThreadgroupSize(pipeline, device, grid)];
  return Status();
}

Status Encoder::Fill(const Tensor& tensor, uint8_t value) {
  BufferRef ref;
  RETURN_IF_ERROR(ResolveBuffer(tensor, &ref));
  if (ref.buffer == nil) return Status();
  if (ref.offset % 4 != 0 || tensor.byte_size() % 4 != 0) {
    return Internal("Fill wants whole 4-byte words, as Metal's fillBuffer does; got ",
                    tensor.byte_size(), " bytes at offset ", static_cast<uint64_t>(ref.offset));
  }
  id<MTLBlitCommandEncoder> blit = nil;
  RETURN_IF_ERROR(Blit(&blit));
  [blit fillBuffer:ref.buffer range:NSMakeRange(ref.offset, tensor.byte_size()) value:value];
  [blit endEncoding];
  return Status();
}

Status Encoder::Copy(const Tensor& from, const Tensor& to) {
  if (from.byte_size() != to.byte_size()) {
    return Internal("Copy wants tensors of one size; got ", from.byte_size(), " and ",
                    to.byte_size(), " bytes");
  }
  BufferRef source, target;
  RETURN_IF_ERROR(ResolveBuffer(from, &source));
  RETURN_IF_ERROR(ResolveBuffer(to, &target));
  if (source.buffer == nil) return Status();
  id<MTLBlitCommandEncoder> blit = nil;
  RETURN_IF_ERROR(Blit(&blit));
  [blit copyFromBuffer:source.buffer
           sourceOffset:source.offset
               toBuffer:target.buffer
      destinationOffset:target.offset
                   size:from.byte_size()];
  [blit endEncoding];
  return Status();
}

Status Encoder::Allocate(size_t bytes, ReadBack* read_back) {
  id<MTLCommandBuffer> commands = [stream_ currentCommandBuffer];
  if (commands == nil) return Internal("the stream has no command buffer");
  [read_back->buffer_ release];
  read_back->buffer_ = [[commands device] newBufferWithLength:std::max<size_t>(bytes, 4)
                                                      options:MTLResourceStorageModeShared];
  if (read_back->buffer_ == nil) {
    return ResourceExhausted("out of device memory: ", bytes, " bytes to read back");
  }
  return Status();
}

Status Encoder::Blit(id<MTLBlitCommandEncoder>* blit) {
  EndCompute();
  id<MTLCommandBuffer> commands = [stream_ currentCommandBuffer];
  if (commands == nil) return Internal("the stream has no command buffer");
  *blit = [commands blitCommandEncoder];
  if (*blit == nil) return Internal("the command buffer gave no blit encoder");
  used_ = true;
  return Status();
}

namespace {

Status EncodeOnStream(KernelContext* ctx, bool wait, const std::function<Status(Encoder&)>& body) {
  void* handle = nullptr;
  RETURN_IF_ERROR(ctx->Stream(&handle));
  id<TF_MetalStream> stream = static_cast<id<TF_MetalStream>>(handle);

  // Through pointers: a block copies what it captures.
  Status status;
  Status* result = &status;
  const std::function<Status(Encoder&)>* work = &body;
  dispatch_sync([stream queue], ^{
    @autoreleasepool {
      *result = RunOnQueue(stream, wait, *work);
    }
  });
  RETURN_IF_ERROR(status);
  return DeviceFailure();
}

}  // namespace

Status Encode(KernelContext* ctx, const std::function<Status(Encoder&)>& body) {
  return EncodeOnStream(ctx, /*wait=*/false, body);
}

Status EncodeAndWait(KernelContext* ctx, const std::function<Status(Encoder&)>& body) {
  return EncodeOnStream(ctx, /*wait=*/true, body);
}

Status CheckGrid(const char* op, const char* what, int64_t count) {
  if (count <= kMaxGrid) return Status();
  return InvalidArgument(
      op, ": ", count, " ", what,
      " are more than the 2^32 - 1 threads of one Metal dispatch; use a smaller batch");
}

}  // namespace metal_ops
