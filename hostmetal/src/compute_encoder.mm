// MTLComputeCommandEncoder.
#include "hostmetal/src/compute_encoder.h"

#include <string.h>

#include <algorithm>

#include "hostmetal/src/counters.h"
#include "hostmetal/src/function_table.h"
#include "hostmetal/src/indirect_command_buffer.h"

using hostmetal::Command;
using hostmetal::CommandType;
using hostmetal::kInternal;
using hostmetal::kInvalidResource;

namespace {

constexpr NSUInteger kMaxBytes = 4096, kBytesAlignment = 16;

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
- (id)initInside:(HMEncoder*)encoder {
  self = [super initInside:encoder];
  if (self) {
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
  // Zeros behind, which a pointer to a float3 reads.
  const size_t whole = (length + kBytesAlignment - 1) / kBytesAlignment * kBytesAlignment;
  auto* copy = static_cast<char*>(_buffer->_state->list.arena.Allocate(whole));
  memcpy(copy, bytes, length);
  memset(copy + length, 0, whole - length);
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
- (void)setSampler:(id<MTLSamplerState>)object atIndex:(NSUInteger)index lod:(const float*)lod {
  if (![self isOpen:"setSamplerState"]) return;
  auto* sampler = (HMSamplerState*)object;
  if (index >= METALLIB_MAX_SAMPLERS ||
      (sampler && ![sampler isKindOfClass:HM_CLASS(HMSamplerState)])) {
    [self fail:kInvalidResource
        message:"[setSamplerState] index " + Number(index) + "; the highest is " +
                Number(METALLIB_MAX_SAMPLERS - 1) + ", and the sampler must be of this device"];
    return;
  }
  metallib_sampler* bound = sampler ? &sampler->_sampler : nullptr;
  if (sampler && lod) {
    void* copy = _buffer->_state->list.arena.Allocate(sizeof *bound);
    bound = new (copy) metallib_sampler(*bound);
    bound->lod_min = lod[0];
    bound->lod_max = lod[1];
  }
  _bound->WithTextures();
  _bound->At(METALLIB_FIRST_SAMPLER + index) = {bound, bound ? sizeof *bound : 0};
  if (sampler) _buffer->_state->Use(sampler);
}
- (void)setSamplerState:(id<MTLSamplerState>)sampler atIndex:(NSUInteger)index {
  [self setSampler:sampler atIndex:index lod:nullptr];
}
- (void)setSamplerState:(id<MTLSamplerState>)sampler
            lodMinClamp:(float)lodMinClamp
            lodMaxClamp:(float)lodMaxClamp
                atIndex:(NSUInteger)index {
  const float lod[] = {lodMinClamp, lodMaxClamp};
  [self setSampler:sampler atIndex:index lod:lod];
}
- (void)setSamplerStates:(const id<MTLSamplerState>[])samplers withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setSamplerState:samplers[i] atIndex:range.location + i];
  }
}
- (void)setSamplerStates:(const id<MTLSamplerState>[])samplers
            lodMinClamps:(const float[])lodMinClamps
            lodMaxClamps:(const float[])lodMaxClamps
               withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setSamplerState:samplers[i]
              lodMinClamp:lodMinClamps[i]
              lodMaxClamp:lodMaxClamps[i]
                  atIndex:range.location + i];
  }
}

- (void)setStageInRegion:(MTLRegion)region {
  [self isOpen:"setStageInRegion"];
}
- (void)setStageInRegionWithIndirectBuffer:(id<MTLBuffer>)buffer
                      indirectBufferOffset:(NSUInteger)offset {
  const char* method = "setStageInRegionWithIndirectBuffer";
  if (![self isOpen:method]) return;
  [self use:buffer offset:offset length:sizeof(MTLStageInRegionIndirectArguments) method:method];
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
  const uint32_t bit = 1u << index;
  _bound->without_memory = length ? _bound->without_memory & ~bit : _bound->without_memory | bit;
}

// The command, filled in except for the grid; nullptr after an error.
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
  if (const hostmetal::Failure wrong = hostmetal::UnfitGroup(group, pipeline)) {
    [self fail:wrong.code message:where() + wrong.message];
    return nullptr;
  }
  if (pipeline->_bindingCount > METALLIB_FIRST_TEXTURE) _bound->WithTextures();
  uint32_t shorter;
  if (const hostmetal::Failure wrong = hostmetal::Unfit(*_bound, pipeline, &shorter)) {
    [self fail:wrong.code message:where() + wrong.message];
    return nullptr;
  }
  hostmetal::CommandList& list = _buffer->_state->list;
  Command& command = list.Add(type);
  command.overlaps = _dispatchType == MTLDispatchTypeConcurrent && !_barrier;
  _barrier = NO;
  hostmetal::Bind(*_bound, pipeline, group, shorter, &list.arena, &command.dispatch);
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
  if (const hostmetal::Failure wrong = hostmetal::SetGrid(grid, groups, &command->dispatch)) {
    _buffer->_state->list.commands.pop_back();
    [self fail:wrong.code message:std::string("[") + method + "] " + wrong.message];
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

// ---- indirect command buffers

- (HMIndirectCommandBuffer*)commandsToExecute:(id<MTLIndirectCommandBuffer>)object
                                       method:(const char*)method {
  HMIndirectCommandBuffer* commands =
      [self isOpen:method] ? [self useCommands:object method:method] : nil;
  if (commands) _barrier = YES;
  return commands;
}
// The state that commands inherit, as it is now.
- (hostmetal::Inherited)inherited {
  auto bound = std::make_shared<hostmetal::Bindings>();
  bound->SetBuffers(*_bound);
  return {_pipeline, std::move(bound)};
}
- (void)executeCommandsInBuffer:(id<MTLIndirectCommandBuffer>)object withRange:(NSRange)range {
  HMIndirectCommandBuffer* buffer = [self commandsToExecute:object
                                                     method:"executeCommandsInBuffer"];
  if (!buffer) return;
  hostmetal::IndirectCommands* commands = buffer->_commands;
  _buffer->_state->list.AddCall([commands, range, inherited = [self inherited]](
                                    hostmetal::CommandList& list, hostmetal::Stream& stream) {
    return commands->Execute(range, inherited, list, stream);
  });
}
- (void)executeCommandsInBuffer:(id<MTLIndirectCommandBuffer>)object
                 indirectBuffer:(id<MTLBuffer>)indirectBuffer
           indirectBufferOffset:(NSUInteger)offset {
  const char* method = "executeCommandsInBuffer";
  HMIndirectCommandBuffer* buffer = [self commandsToExecute:object method:method];
  if (!buffer) return;
  HMBuffer* ranges = [self use:indirectBuffer
                        offset:offset
                        length:sizeof(MTLIndirectCommandBufferExecutionRange)
                        method:method];
  if (!ranges) return;
  const char* at = static_cast<const char*>(ranges->_allocation.device) + offset;
  hostmetal::IndirectCommands* commands = buffer->_commands;
  _buffer->_state->list.AddCall([commands, at, inherited = [self inherited]](
                                    hostmetal::CommandList& list, hostmetal::Stream& stream) {
    MTLIndirectCommandBufferExecutionRange range;
    if (hostmetal::Failure failure = stream.Read(&range, at, sizeof range)) return failure;
    return commands->Execute(NSMakeRange(range.location, range.length), inherited, list, stream);
  });
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
- (void)sampleCountersInBuffer:(id<MTLCounterSampleBuffer>)samples
                 atSampleIndex:(NSUInteger)index
                   withBarrier:(BOOL)barrier {
  hostmetal::EncodeSample(self, samples, index);
  _barrier = YES;
}

@end
