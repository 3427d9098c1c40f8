// MTLComputeCommandEncoder.
#include "hostmetal/src/compute_encoder.h"

#include <string.h>

#include <algorithm>

#include "hostmetal/src/function_table.h"

using hostmetal::Command;
using hostmetal::CommandType;
using hostmetal::kInternal;
using hostmetal::kInvalidResource;

namespace {

constexpr NSUInteger kMaxBytes = 4096;

std::string Number(uint64_t n) { return std::to_string(n); }

}  // namespace

@implementation HMComputeCommandEncoder

- (id)initWithCommandBuffer:(HMCommandBuffer*)buffer dispatchType:(MTLDispatchType)dispatchType {
  self = [super initWithCommandBuffer:buffer];
  if (self) {
    _dispatchType = dispatchType;
    _bound = new hostmetal::Bindings;
    _barrier = YES;
  }
  return self;
}
- (void)dealloc {
  delete _bound;
  [super dealloc];
}
- (MTLDispatchType)dispatchType {
  return _dispatchType;
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  if (![self isOpen:"setComputePipelineState"]) return;
  auto* pipeline = (HMComputePipelineState*)state;
  if (![pipeline isKindOfClass:HM_CLASS(HMComputePipelineState)] ||
      pipeline->_device != _buffer->_queue->_device) {
    _pipeline = nil;
    [self fail:kInvalidResource
        message:"[setComputePipelineState] the pipeline is nil or not of this device"];
    return;
  }
  _pipeline = pipeline;
  _buffer->_state->Use(pipeline);
}

- (BOOL)checkIndex:(NSUInteger)index method:(const char*)method {
  if (index < METALLIB_MAX_BUFFERS) return YES;
  [self fail:kInvalidResource
      message:std::string("[") + method + "] index " + Number(index) + "; the highest is " +
              Number(METALLIB_MAX_BUFFERS - 1)];
  return NO;
}

- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  if (![self isOpen:"setBytes"] || ![self checkIndex:index method:"setBytes"]) return;
  if (length > kMaxBytes || length == 0 || !bytes) {
    [self fail:kInternal
        message:"[setBytes] " + Number(length) + " bytes at index " + Number(index) + "; 1 to " +
                Number(kMaxBytes) + " are allowed, use a buffer for more"];
    return;
  }
  void* copy = _buffer->_state->list.arena.Allocate(length);
  memcpy(copy, bytes, length);
  _bound->table[index] = {copy, length};
  _bound->buffers[index] = nil;
  _bound->host_bytes |= 1u << index;
  _bound->tables &= ~(1u << index);
}

- (void)bind:(id<MTLBuffer>)buffer
      offset:(NSUInteger)offset
     atIndex:(NSUInteger)index
      method:(const char*)method {
  _bound->host_bytes &= ~(1u << index);
  _bound->tables &= ~(1u << index);
  if (!buffer) {
    _bound->table[index] = {nullptr, 0};
    _bound->buffers[index] = nil;
    return;
  }
  HMBuffer* bound = [self use:buffer offset:offset length:0 method:method];
  if (!bound) return;
  _bound->table[index] = {static_cast<char*>(bound->_allocation.device) + offset,
                          bound->_length - offset};
  _bound->buffers[index] = bound;
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  if (![self isOpen:"setBuffer"] || ![self checkIndex:index method:"setBuffer"]) return;
  [self bind:buffer offset:offset atIndex:index method:"setBuffer"];
}

- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  if (![self isOpen:"setBufferOffset"] || ![self checkIndex:index method:"setBufferOffset"]) return;
  HMBuffer* bound = _bound->buffers[index];
  if (!bound) {
    [self fail:kInvalidResource
        message:"[setBufferOffset] no buffer is bound at index " + Number(index)];
    return;
  }
  [self bind:bound offset:offset atIndex:index method:"setBufferOffset"];
}

- (void)setBuffers:(const id<MTLBuffer>[])buffers
           offsets:(const NSUInteger[])offsets
         withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setBuffer:buffers[i] offset:offsets[i] atIndex:range.location + i];
  }
}

- (void)setVisibleFunctionTable:(id<MTLVisibleFunctionTable>)table atBufferIndex:(NSUInteger)index {
  const char* method = "setVisibleFunctionTable";
  if (![self isOpen:method] || ![self checkIndex:index method:method]) return;
  if (table && ![(id)table isKindOfClass:HM_CLASS(HMVisibleFunctionTable)]) {
    return [self fail:kInvalidResource
              message:std::string("[") + method + "] index " + Number(index) + " gets no table"];
  }
  [self bind:(id<MTLBuffer>)table offset:0 atIndex:index method:method];
  if (_bound->buffers[index] == (id)table && table) _bound->tables |= 1u << index;
}
- (void)setVisibleFunctionTables:(const id<MTLVisibleFunctionTable>[])tables
                 withBufferRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setVisibleFunctionTable:tables[i] atBufferIndex:range.location + i];
  }
}

- (void)setTexture:(id<MTLTexture>)object atIndex:(NSUInteger)index {
  if (![self isOpen:"setTexture"]) return;
  auto* texture = (HMTexture*)object;
  if (index >= METALLIB_MAX_TEXTURES ||
      (texture && !([texture isKindOfClass:HM_CLASS(HMTexture)] &&
                    texture->_device == _buffer->_queue->_device))) {
    [self fail:kInvalidResource
        message:"[setTexture] index " + Number(index) + "; the highest is " +
                Number(METALLIB_MAX_TEXTURES - 1) + ", and the texture must be of this device"];
    return;
  }
  _bound->WithTextures().objects[index] = texture;
  _bound->At(METALLIB_FIRST_TEXTURE + index) = {texture ? &texture->_layout : nullptr,
                                                texture ? sizeof texture->_layout : 0};
  if (texture) _buffer->_state->Use(texture);
}
- (void)setTextures:(const id<MTLTexture>[])textures withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setTexture:textures[i] atIndex:range.location + i];
  }
}
- (void)setSamplerState:(id<MTLSamplerState>)object atIndex:(NSUInteger)index {
  if (![self isOpen:"setSamplerState"]) return;
  auto* sampler = (HMSamplerState*)object;
  if (index >= METALLIB_MAX_SAMPLERS ||
      (sampler && ![sampler isKindOfClass:HM_CLASS(HMSamplerState)])) {
    [self fail:kInvalidResource
        message:"[setSamplerState] index " + Number(index) + "; the highest is " +
                Number(METALLIB_MAX_SAMPLERS - 1) + ", and the sampler must be of this device"];
    return;
  }
  _bound->WithTextures();
  _bound->At(METALLIB_FIRST_SAMPLER + index) = {sampler ? &sampler->_sampler : nullptr,
                                                sampler ? sizeof sampler->_sampler : 0};
  if (sampler) _buffer->_state->Use(sampler);
}
- (void)setSamplerStates:(const id<MTLSamplerState>[])samplers withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setSamplerState:samplers[i] atIndex:range.location + i];
  }
}

- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  if (![self isOpen:"setThreadgroupMemoryLength"] ||
      ![self checkIndex:index method:"setThreadgroupMemoryLength"]) {
    return;
  }
  HMDevice* device = _buffer->_queue->_device;
  const uint32_t most = device->_driver->info().threadgroup_bytes;
  if (length > most || (device->_validate && length % 16)) {
    [self fail:kInternal
        message:"[setThreadgroupMemoryLength] " + Number(length) + " bytes at index " +
                Number(index) + "; multiples of 16 up to " + Number(most) + " are allowed"];
    return;
  }
  _bound->threadgroup_lengths[index] = uint32_t(length);
}

// The command, filled in but for the grid; nullptr after an error.
- (Command*)newDispatch:(CommandType)type group:(MTLSize)group method:(const char*)method {
  if (![self isOpen:method]) return nullptr;
  HMComputePipelineState* pipeline = _pipeline;
  if (!pipeline) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] no compute pipeline state is set"];
    return nullptr;
  }
  const auto where = [&] {
    return std::string("[") + method + "] kernel '" + pipeline->_kernel->entry->name + "': ";
  };
  NSUInteger limit = METALLIB_MAX_THREADS;
  NSUInteger threads = group.width > limit || group.height > limit || group.depth > limit
                           ? NSUIntegerMax
                           : group.width * group.height * group.depth;
  if (threads == 0 || threads > pipeline->_kernel->max_threads) {
    [self fail:kInternal
        message:where() + "a threadgroup of " + Number(group.width) + " x " + Number(group.height) +
                " x " + Number(group.depth) + " threads; 1 to " +
                Number(pipeline->_kernel->max_threads) +
                " are allowed (maxTotalThreadsPerThreadgroup)"];
    return nullptr;
  }
  if (pipeline->_multipleOfWidth && _buffer->_queue->_device->_validate &&
      threads % METALLIB_SIMD_WIDTH) {
    [self fail:kInternal
        message:where() + "a threadgroup of " + Number(threads) +
                " threads, but the pipeline was promised multiples of " +
                Number(METALLIB_SIMD_WIDTH)];
    return nullptr;
  }
  if (pipeline->_bindingCount > METALLIB_FIRST_TEXTURE) _bound->WithTextures();
  if (const hostmetal::Failure wrong = hostmetal::Unfit(*_bound, pipeline)) {
    [self fail:wrong.code message:where() + wrong.message];
    return nullptr;
  }
  hostmetal::CommandList& list = _buffer->_state->list;
  // One copy of both tables, as short as the kernel allows.
  size_t count = pipeline->_bindingCount;
  auto* bindings = static_cast<metallib_buffer*>(
      list.arena.Allocate(count * sizeof(metallib_buffer) + sizeof _bound->threadgroup_lengths));
  constexpr size_t kBuffers = METALLIB_FIRST_TEXTURE;
  std::copy_n(_bound->table, std::min(count, kBuffers), bindings);
  if (count > kBuffers) {
    std::copy_n(_bound->textures->table, count - kBuffers, bindings + kBuffers);
  }
  auto* lengths = reinterpret_cast<uint32_t*>(bindings + count);
  std::copy_n(_bound->threadgroup_lengths, METALLIB_MAX_BUFFERS, lengths);
  Command& command = list.Add(type);
  command.overlaps = _dispatchType == MTLDispatchTypeConcurrent && !_barrier;
  _barrier = NO;
  command.dispatch.kernel = pipeline->_kernel;
  command.dispatch.buffers = bindings;
  command.dispatch.threadgroup_lengths = lengths;
  command.dispatch.host_bytes = _bound->host_bytes;
  command.dispatch.threadgroup_size[0] = uint32_t(group.width);
  command.dispatch.threadgroup_size[1] = uint32_t(group.height);
  command.dispatch.threadgroup_size[2] = uint32_t(group.depth);
  return &command;
}

- (void)dispatch:(MTLSize)grid groups:(BOOL)groups group:(MTLSize)group method:(const char*)method {
  if (grid.width == 0 || grid.height == 0 || grid.depth == 0) {
    if ([self isOpen:method] && _buffer->_queue->_device->_validate) {
      [self fail:kInternal
          message:std::string("[") + method + "] the grid is " + Number(grid.width) + " x " +
                  Number(grid.height) + " x " + Number(grid.depth) +
                  "; every dimension must be at least 1"];
    }
    return;  // nothing to run
  }
  Command* command = [self newDispatch:CommandType::kDispatch group:group method:method];
  if (!command) return;
  NSUInteger size[3] = {grid.width, grid.height, grid.depth};
  for (int i = 0; i < 3; ++i) {
    uint64_t per_group = command->dispatch.threadgroup_size[i];
    uint64_t threads = size[i];
    if (groups && __builtin_mul_overflow(threads, per_group, &threads)) threads = UINT64_MAX;
    if (threads > UINT32_MAX) {
      _buffer->_state->list.commands.pop_back();
      [self fail:kInternal
          message:std::string("[") + method + "] " + Number(threads) +
                  " threads in one dimension; the limit is " + Number(UINT32_MAX)];
      return;
    }
    command->dispatch.threads[i] = uint32_t(threads);
    command->dispatch.threadgroups[i] = uint32_t((threads + per_group - 1) / per_group);
  }
}

- (void)dispatchThreadgroups:(MTLSize)grid threadsPerThreadgroup:(MTLSize)group {
  [self dispatch:grid groups:YES group:group method:"dispatchThreadgroups"];
}
- (void)dispatchThreads:(MTLSize)grid threadsPerThreadgroup:(MTLSize)group {
  [self dispatch:grid groups:NO group:group method:"dispatchThreads"];
}

- (void)dispatchThreadgroupsWithIndirectBuffer:(id<MTLBuffer>)indirectBuffer
                          indirectBufferOffset:(NSUInteger)offset
                         threadsPerThreadgroup:(MTLSize)group {
  const char* method = "dispatchThreadgroupsWithIndirectBuffer";
  if (![self isOpen:method]) return;
  if (offset % 4) {
    [self fail:kInternal
        message:std::string("[") + method + "] offset " + Number(offset) +
                " is not a multiple of 4"];
    return;
  }
  HMBuffer* buffer = [self use:indirectBuffer
                        offset:offset
                        length:sizeof(MTLDispatchThreadgroupsIndirectArguments)
                        method:method];
  if (!buffer) return;
  Command* command = [self newDispatch:CommandType::kIndirect group:group method:method];
  if (!command) return;
  command->indirect = reinterpret_cast<const uint32_t*>(
      static_cast<const char*>(buffer->_allocation.device) + offset);
}

- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  if ([self isOpen:"useResource"]) _buffer->_state->Use(resource);
}
- (void)useResources:(const id<MTLResource>[])resources
               count:(NSUInteger)count
               usage:(MTLResourceUsage)usage {
  for (NSUInteger i = 0; i < count; ++i) [self useResource:resources[i] usage:usage];
}

- (void)useHeap:(id<MTLHeap>)heap {
  [self useHeaps:&heap count:1];
}
- (void)useHeaps:(const id<MTLHeap>[])heaps count:(NSUInteger)count {
  if (![self isOpen:"useHeap"]) return;
  for (NSUInteger i = 0; i < count; ++i) _buffer->_state->Use(heaps[i]);
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  if ([self isOpen:"memoryBarrierWithScope"]) _barrier = YES;
}
- (void)memoryBarrierWithResources:(const id<MTLResource>[])resources count:(NSUInteger)count {
  if ([self isOpen:"memoryBarrierWithResources"]) _barrier = YES;
}

@end
