// MTLComputeCommandEncoder and MTLBlitCommandEncoder.
#include <string.h>

#include <algorithm>
#include <iterator>

#include "hostmetal/src/internal.h"

using hostmetal::Command;
using hostmetal::CommandBufferState;
using hostmetal::CommandType;
using hostmetal::kInternal;
using hostmetal::kInvalidResource;

namespace {

constexpr NSUInteger kMaxBytes = 4096;

std::string Number(uint64_t n) { return std::to_string(n); }

// What is wrong with binding this texture to that argument; "" if nothing is.
std::string Mismatch(const metallib_argument& a, HMTexture* texture, bool validate) {
  std::string expected = std::string("is declared as ") + a.type_name;
  if (hostmetal::TextureType(a.type_name) != texture->_textureType) {
    return expected + ", but the texture has MTLTextureType " + Number(texture->_textureType);
  }
  // Components may be wider than what is stored, but not of another sort.
  std::string component = hostmetal::TextureComponent(a.type_name);
  uint32_t stored = texture->_layout.component;
  bool is_unsigned =
      stored == METALLIB_UINT8 || stored == METALLIB_UINT16 || stored == METALLIB_UINT32;
  bool is_signed =
      stored == METALLIB_SINT8 || stored == METALLIB_SINT16 || stored == METALLIB_SINT32;
  const char* sort = is_unsigned ? "unsigned integers" : is_signed ? "signed integers" : "floats";
  if ((component == "uint" || component == "ushort") != is_unsigned ||
      (component == "int" || component == "short") != is_signed) {
    return expected + ", but MTLPixelFormat " + Number(texture->_pixelFormat) + " holds " + sort;
  }
  bool writes = a.flags & METALLIB_ARG_WRITTEN;
  bool reads = std::string(a.type_name).find("access::write>") == std::string::npos;
  MTLTextureUsage needed =
      (reads ? MTLTextureUsageShaderRead : 0) | (writes ? MTLTextureUsageShaderWrite : 0);
  if (validate && texture->_usage != MTLTextureUsageUnknown &&
      (texture->_usage & needed) != needed) {
    return expected + ", but the texture's usage is " + Number(texture->_usage) +
           ", without what that needs (MTLTextureUsageShaderRead 1, ShaderWrite 2)";
  }
  return "";
}

}  // namespace

struct HMComputeState {
  HMComputePipelineState* pipeline = nil;
  // Nil where setBytes: was used; for setBufferOffset:.
  HMBuffer* buffers[METALLIB_MAX_BUFFERS] = {};
  uint32_t threadgroup_lengths[METALLIB_MAX_BUFFERS] = {};
  uint32_t host_bytes = 0;  // as in DispatchCommand
  bool barrier = true;      // the next dispatch must wait for those before it
  bool has_textures = false;
  // As in metallib_launch. What is behind the buffers is cleared when it is first needed: it is
  // most of this struct.
  metallib_buffer bindings[METALLIB_MAX_BINDINGS];
  HMTexture* textures[METALLIB_MAX_TEXTURES];

  HMComputeState() { std::fill_n(bindings, METALLIB_FIRST_TEXTURE, metallib_buffer()); }
  void ClearTextures() {
    if (has_textures) return;
    std::fill(bindings + METALLIB_FIRST_TEXTURE, std::end(bindings), metallib_buffer());
    std::fill(std::begin(textures), std::end(textures), nullptr);
    has_textures = true;
  }
};

@implementation HMEncoder

- (id)initWithCommandBuffer:(HMCommandBuffer*)buffer {
  self = [super init];
  if (self) {
    _buffer = [buffer retain];
    CommandBufferState& b = *buffer->_state;
    b.open_encoder = self;
    _number = b.list.encoders++;
    b.encoders.emplace_back();
  }
  return self;
}

- (void)dealloc {
  if (!_ended) [self detach];
  [_buffer release];
  [super dealloc];
}

- (void)detach {
  CommandBufferState& b = *_buffer->_state;
  if (b.open_encoder == self) b.open_encoder = nil;
  NSString* label = [self label];
  if (label) b.encoders[_number].label = hostmetal::ToString(label);
  _ended = YES;
}

- (id<MTLDevice>)device {
  return _buffer->_queue->_device;
}

- (void)endEncoding {
  if (_ended) {
    [self isOpen:"endEncoding"];
    return;
  }
  [self detach];
}

// Misuse is an error of the command buffer while that can still carry one.
- (BOOL)isOpen:(const char*)method {
  if (!_ended) return YES;
  std::string message = std::string("[") + method + "] the encoder has ended";
  CommandBufferState& b = *_buffer->_state;
  if (b.committed.load(std::memory_order_relaxed)) {
    fprintf(stderr, "%s and its command buffer is committed\n", message.c_str());
  } else {
    b.list.Fail(kInternal, message);
  }
  return NO;
}

- (void)fail:(int)code message:(const std::string&)message {
  _buffer->_state->list.Fail(code, message);
}

- (void)insertDebugSignpost:(NSString*)string {
  if ([self isOpen:"insertDebugSignpost"]) {
    _buffer->_state->encoders[_number].signposts.push_back(hostmetal::ToString(string));
  }
}
- (void)pushDebugGroup:(NSString*)string {
  if (![self isOpen:"pushDebugGroup"]) return;
  _buffer->_state->encoders[_number].signposts.push_back(hostmetal::ToString(string));
  [_buffer pushDebugGroup:string];
}
- (void)popDebugGroup {
  if ([self isOpen:"popDebugGroup"]) [_buffer popDebugGroup];
}

// Commands run one after the other unless an encoder is concurrent, and encoders always do: fences
// hold by themselves.
- (void)updateFence:(id<MTLFence>)fence {
  [self isOpen:"updateFence"];
}
- (void)waitForFence:(id<MTLFence>)fence {
  [self isOpen:"waitForFence"];
}

// The buffer, checked and kept alive; nil after an error.
- (HMBuffer*)use:(id<MTLBuffer>)object
          offset:(NSUInteger)offset
          length:(NSUInteger)length
          method:(const char*)method {
  auto* buffer = (HMBuffer*)object;
  if (![buffer isKindOfClass:[HMBuffer class]]) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] the buffer is nil or not of this device"];
    return nil;
  }
  if (offset > buffer->_length || length > buffer->_length - offset) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] bytes " + Number(offset) + " to " +
                Number(offset + length) + " of a buffer of " + Number(buffer->_length) + " bytes"];
    return nil;
  }
  _buffer->_state->Use(buffer);
  return buffer;
}

@end

@interface HMEncoder (Hostmetal)
- (BOOL)isOpen:(const char*)method;
- (void)fail:(int)code message:(const std::string&)message;
- (HMBuffer*)use:(id<MTLBuffer>)object
          offset:(NSUInteger)offset
          length:(NSUInteger)length
          method:(const char*)method;
@end

// ---- compute

@implementation HMComputeCommandEncoder

- (id)initWithCommandBuffer:(HMCommandBuffer*)buffer dispatchType:(MTLDispatchType)dispatchType {
  self = [super initWithCommandBuffer:buffer];
  if (self) {
    _dispatchType = dispatchType;
    _compute = new HMComputeState;
  }
  return self;
}
- (void)dealloc {
  delete _compute;
  [super dealloc];
}
- (MTLDispatchType)dispatchType {
  return _dispatchType;
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  if (![self isOpen:"setComputePipelineState"]) return;
  auto* pipeline = (HMComputePipelineState*)state;
  if (![pipeline isKindOfClass:[HMComputePipelineState class]]) {
    _compute->pipeline = nil;
    [self fail:kInvalidResource
        message:"[setComputePipelineState] the pipeline is nil or not of this device"];
    return;
  }
  _compute->pipeline = pipeline;
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
  _compute->bindings[index] = {copy, length};
  _compute->buffers[index] = nil;
  _compute->host_bytes |= 1u << index;
}

- (void)bind:(id<MTLBuffer>)buffer
      offset:(NSUInteger)offset
     atIndex:(NSUInteger)index
      method:(const char*)method {
  _compute->host_bytes &= ~(1u << index);
  if (!buffer) {
    _compute->bindings[index] = {nullptr, 0};
    _compute->buffers[index] = nil;
    return;
  }
  HMBuffer* bound = [self use:buffer offset:offset length:0 method:method];
  if (!bound) return;
  _compute->bindings[index] = {static_cast<char*>(bound->_allocation.device) + offset,
                               bound->_length - offset};
  _compute->buffers[index] = bound;
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  if (![self isOpen:"setBuffer"] || ![self checkIndex:index method:"setBuffer"]) return;
  [self bind:buffer offset:offset atIndex:index method:"setBuffer"];
}

- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  if (![self isOpen:"setBufferOffset"] || ![self checkIndex:index method:"setBufferOffset"]) return;
  HMBuffer* bound = _compute->buffers[index];
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

- (void)setTexture:(id<MTLTexture>)object atIndex:(NSUInteger)index {
  if (![self isOpen:"setTexture"]) return;
  auto* texture = (HMTexture*)object;
  if (index >= METALLIB_MAX_TEXTURES || (texture && ![texture isKindOfClass:[HMTexture class]])) {
    [self fail:kInvalidResource
        message:"[setTexture] index " + Number(index) + "; the highest is " +
                Number(METALLIB_MAX_TEXTURES - 1) + ", and the texture must be of this device"];
    return;
  }
  _compute->ClearTextures();
  _compute->textures[index] = texture;
  _compute->bindings[METALLIB_FIRST_TEXTURE + index] = {texture ? &texture->_layout : nullptr,
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
      (sampler && ![sampler isKindOfClass:[HMSamplerState class]])) {
    [self fail:kInvalidResource
        message:"[setSamplerState] index " + Number(index) + "; the highest is " +
                Number(METALLIB_MAX_SAMPLERS - 1) + ", and the sampler must be of this device"];
    return;
  }
  _compute->ClearTextures();
  _compute->bindings[METALLIB_FIRST_SAMPLER + index] = {sampler ? &sampler->_sampler : nullptr,
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
  if (length > METALLIB_MAX_THREADGROUP_MEMORY || (device->_validate && length % 16)) {
    [self fail:kInternal
        message:"[setThreadgroupMemoryLength] " + Number(length) + " bytes at index " +
                Number(index) + "; multiples of 16 up to " +
                Number(METALLIB_MAX_THREADGROUP_MEMORY) + " are allowed"];
    return;
  }
  _compute->threadgroup_lengths[index] = uint32_t(length);
}

- (BOOL)checkArguments:(const char*)method {
  HMComputePipelineState* pipeline = _compute->pipeline;
  const hostmetal::Kernel& kernel = *pipeline->_kernel;
  const metallib_kernel& entry = *kernel.entry;
  bool validate = _buffer->_queue->_device->_validate;
  // Words are put together where something is wrong: a launch is encoded in less time than they
  // take.
  const auto where = [&] { return std::string("[") + method + "] kernel '" + entry.name + "': "; };
  uint64_t threadgroup_bytes = entry.static_threadgroup_bytes;
  for (uint32_t i = 0; i < entry.n_arguments; ++i) {
    const metallib_argument& a = entry.arguments[i];
    if (a.flags & METALLIB_ARG_OPTIONAL) {
      bool enabled = a.enabled_by >= 0 && kernel.constants[size_t(a.enabled_by)].defined &&
                     kernel.constants[size_t(a.enabled_by)].bytes[0];
      if (!enabled) continue;
    }
    if (a.kind == METALLIB_THREADGROUP) {
      uint32_t length = _compute->threadgroup_lengths[a.index];
      threadgroup_bytes += length;
      // On a GPU a kernel runs that does not touch it; here it is a page fault where it does.
      if (length || !validate) continue;
      [self fail:kInvalidResource
          message:where() + "threadgroup(" + Number(a.index) + ") '" + a.name +
                  "' has no length; call setThreadgroupMemoryLength:atIndex:"];
      return NO;
    }
    const metallib_buffer& binding = _compute->bindings[hostmetal::Slot(a)];
    if (a.kind == METALLIB_TEXTURE || a.kind == METALLIB_SAMPLER) {
      std::string wrong = binding.address ? "" : "is not bound";
      if (wrong.empty() && a.kind == METALLIB_TEXTURE) {
        wrong = Mismatch(a, _compute->textures[a.index], validate);
      }
      if (wrong.empty()) continue;
      [self fail:kInvalidResource
          message:where() + (a.kind == METALLIB_TEXTURE ? "texture(" : "sampler(") +
                  Number(a.index) + ") '" + a.name + "' " + wrong];
      return NO;
    }
    const auto name = [&] { return where() + "buffer(" + Number(a.index) + ") '" + a.name + "' "; };
    if (!binding.address) {
      [self fail:kInvalidResource message:name() + "is not bound"];
      return NO;
    }
    if ((a.flags & METALLIB_ARG_REFERENCE) && binding.length < a.pointee_size) {
      [self fail:kInvalidResource
          message:name() + "has " + Number(binding.length) + " bytes; " + a.type_name + " takes " +
                  Number(a.pointee_size)];
      return NO;
    }
    if (validate && (a.flags & METALLIB_ARG_WRITTEN) && !_compute->buffers[a.index]) {
      [self fail:kInvalidResource
          message:name() + "is bound by setBytes, which is read-only, but the kernel may write it"];
      return NO;
    }
    if (validate && a.pointee_alignment &&
        reinterpret_cast<uintptr_t>(binding.address) % a.pointee_alignment) {
      [self fail:kInvalidResource
          message:name() + "is bound at an offset that is not a multiple of " +
                  Number(a.pointee_alignment)];
      return NO;
    }
  }
  if (threadgroup_bytes > METALLIB_MAX_THREADGROUP_MEMORY) {
    [self fail:kInternal
        message:where() + Number(threadgroup_bytes) +
                " bytes of threadgroup memory; the limit is " +
                Number(METALLIB_MAX_THREADGROUP_MEMORY)];
    return NO;
  }
  return YES;
}

// The command, filled in but for the grid; nullptr after an error.
- (Command*)newDispatch:(CommandType)type group:(MTLSize)group method:(const char*)method {
  if (![self isOpen:method]) return nullptr;
  HMComputePipelineState* pipeline = _compute->pipeline;
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
  if (pipeline->_bindingCount > METALLIB_FIRST_TEXTURE) _compute->ClearTextures();
  if (![self checkArguments:method]) return nullptr;
  hostmetal::CommandList& list = _buffer->_state->list;
  // One copy of both tables, as short as the kernel allows.
  size_t count = pipeline->_bindingCount;
  auto* bindings = static_cast<metallib_buffer*>(
      list.arena.Allocate(count * sizeof(metallib_buffer) + sizeof _compute->threadgroup_lengths));
  std::copy_n(_compute->bindings, count, bindings);
  auto* lengths = reinterpret_cast<uint32_t*>(bindings + count);
  std::copy_n(_compute->threadgroup_lengths, METALLIB_MAX_BUFFERS, lengths);
  Command& command = list.Add(type);
  command.overlaps = _dispatchType == MTLDispatchTypeConcurrent && !_compute->barrier;
  _compute->barrier = false;
  command.dispatch.kernel = pipeline->_kernel;
  command.dispatch.buffers = bindings;
  command.dispatch.threadgroup_lengths = lengths;
  command.dispatch.host_bytes = _compute->host_bytes;
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
  if ([self isOpen:"memoryBarrierWithScope"]) _compute->barrier = true;
}
- (void)memoryBarrierWithResources:(const id<MTLResource>[])resources count:(NSUInteger)count {
  if ([self isOpen:"memoryBarrierWithResources"]) _compute->barrier = true;
}

@end

// ---- blit

@implementation HMBlitCommandEncoder

- (void)synchronizeResource:(id<MTLResource>)resource {
  // Host and device memory are one; the resource still has to live until here.
  if ([self isOpen:"synchronizeResource"]) _buffer->_state->Use(resource);
}

- (void)fillBuffer:(id<MTLBuffer>)object range:(NSRange)range value:(uint8_t)value {
  if (![self isOpen:"fillBuffer"]) return;
  HMBuffer* buffer = [self use:object
                        offset:range.location
                        length:range.length
                        method:"fillBuffer"];
  if (!buffer) return;
  Command& command = _buffer->_state->list.Add(CommandType::kFill);
  command.destination = static_cast<char*>(buffer->_allocation.device) + range.location;
  command.bytes = range.length;
  command.value = value;
}

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size {
  if (![self isOpen:"copyFromBuffer"]) return;
  HMBuffer* source = [self use:sourceBuffer
                        offset:sourceOffset
                        length:size
                        method:"copyFromBuffer: source"];
  if (!source) return;
  HMBuffer* destination = [self use:destinationBuffer
                             offset:destinationOffset
                             length:size
                             method:"copyFromBuffer: destination"];
  if (!destination) return;
  Command& command = _buffer->_state->list.Add(CommandType::kCopy);
  command.source = static_cast<const char*>(source->_allocation.device) + sourceOffset;
  command.destination = static_cast<char*>(destination->_allocation.device) + destinationOffset;
  command.bytes = size;
}

// ---- textures

- (HMTexture*)useTexture:(id<MTLTexture>)object method:(const char*)method {
  auto* texture = (HMTexture*)object;
  if (![texture isKindOfClass:[HMTexture class]]) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] the texture is nil or not of this device"];
    return nil;
  }
  _buffer->_state->Use(texture);
  return texture;
}

- (void)addBox:(const HMPixels&)pixels
            to:(void*)to
          from:(const void*)from
           row:(size_t)sourceRow
         image:(size_t)sourceImage
         toRow:(size_t)row
       toImage:(size_t)image {
  hostmetal::CommandList& list = _buffer->_state->list;
  auto* box = static_cast<hostmetal::CopyBox*>(list.arena.Allocate(sizeof(hostmetal::CopyBox)));
  *box = {pixels.rows, pixels.images, sourceRow, sourceImage, row, image};
  Command& command = list.Add(CommandType::kCopyBox);
  command.destination = to;
  command.source = from;
  command.bytes = pixels.row_bytes;
  command.box = box;
}

// Between a buffer and a texture; `toTexture` says which way.
- (void)copy:(const char*)method
       buffer:(id<MTLBuffer>)bufferObject
       offset:(NSUInteger)offset
          row:(NSUInteger)rowStride
        image:(NSUInteger)imageStride
      texture:(id<MTLTexture>)textureObject
        slice:(NSUInteger)slice
        level:(NSUInteger)level
       region:(MTLRegion)region
    toTexture:(BOOL)toTexture
      options:(MTLBlitOption)options {
  if (![self isOpen:method]) return;
  HMTexture* texture = [self useTexture:textureObject method:method];
  if (!texture) return;
  HMPixels p;
  std::string what;
  if (options != MTLBlitOptionNone) {
    what = "options is " + Number(options) + "; no texture here has depth or stencil";
  } else if ([texture locate:region
                       level:level
                       slice:slice
                   rowStride:rowStride
                 imageStride:imageStride
                      pixels:&p
                        what:&what]) {
    NSUInteger length = 0;
    if (p.rows && p.images && p.row_bytes) {
      length = (p.images - 1) * p.image_stride + (p.rows - 1) * p.row_stride + p.row_bytes;
    }
    HMBuffer* buffer = [self use:bufferObject offset:offset length:length method:method];
    if (!buffer || !length) return;
    char* bytes = static_cast<char*>(buffer->_allocation.device) + offset;
    if (toTexture) {
      [self addBox:p
                to:p.texture
              from:bytes
               row:p.row_stride
             image:p.image_stride
             toRow:p.texture_row
           toImage:p.texture_image];
    } else {
      [self addBox:p
                to:bytes
              from:p.texture
               row:p.texture_row
             image:p.texture_image
             toRow:p.row_stride
           toImage:p.image_stride];
    }
    return;
  }
  [self fail:kInvalidResource message:std::string("[") + method + "] " + what];
}

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
           sourceOffset:(NSUInteger)sourceOffset
      sourceBytesPerRow:(NSUInteger)sourceBytesPerRow
    sourceBytesPerImage:(NSUInteger)sourceBytesPerImage
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin
                options:(MTLBlitOption)options {
  [self copy:"copyFromBuffer:toTexture"
         buffer:sourceBuffer
         offset:sourceOffset
            row:sourceBytesPerRow
          image:sourceBytesPerImage
        texture:destinationTexture
          slice:destinationSlice
          level:destinationLevel
         region:{destinationOrigin, sourceSize}
      toTexture:YES
        options:options];
}
- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
           sourceOffset:(NSUInteger)sourceOffset
      sourceBytesPerRow:(NSUInteger)sourceBytesPerRow
    sourceBytesPerImage:(NSUInteger)sourceBytesPerImage
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin {
  [self copyFromBuffer:sourceBuffer
             sourceOffset:sourceOffset
        sourceBytesPerRow:sourceBytesPerRow
      sourceBytesPerImage:sourceBytesPerImage
               sourceSize:sourceSize
                toTexture:destinationTexture
         destinationSlice:destinationSlice
         destinationLevel:destinationLevel
        destinationOrigin:destinationOrigin
                  options:MTLBlitOptionNone];
}
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
                 sourceSlice:(NSUInteger)sourceSlice
                 sourceLevel:(NSUInteger)sourceLevel
                sourceOrigin:(MTLOrigin)sourceOrigin
                  sourceSize:(MTLSize)sourceSize
                    toBuffer:(id<MTLBuffer>)destinationBuffer
           destinationOffset:(NSUInteger)destinationOffset
      destinationBytesPerRow:(NSUInteger)destinationBytesPerRow
    destinationBytesPerImage:(NSUInteger)destinationBytesPerImage
                     options:(MTLBlitOption)options {
  [self copy:"copyFromTexture:toBuffer"
         buffer:destinationBuffer
         offset:destinationOffset
            row:destinationBytesPerRow
          image:destinationBytesPerImage
        texture:sourceTexture
          slice:sourceSlice
          level:sourceLevel
         region:{sourceOrigin, sourceSize}
      toTexture:NO
        options:options];
}
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
                 sourceSlice:(NSUInteger)sourceSlice
                 sourceLevel:(NSUInteger)sourceLevel
                sourceOrigin:(MTLOrigin)sourceOrigin
                  sourceSize:(MTLSize)sourceSize
                    toBuffer:(id<MTLBuffer>)destinationBuffer
           destinationOffset:(NSUInteger)destinationOffset
      destinationBytesPerRow:(NSUInteger)destinationBytesPerRow
    destinationBytesPerImage:(NSUInteger)destinationBytesPerImage {
  [self copyFromTexture:sourceTexture
                   sourceSlice:sourceSlice
                   sourceLevel:sourceLevel
                  sourceOrigin:sourceOrigin
                    sourceSize:sourceSize
                      toBuffer:destinationBuffer
             destinationOffset:destinationOffset
        destinationBytesPerRow:destinationBytesPerRow
      destinationBytesPerImage:destinationBytesPerImage
                       options:MTLBlitOptionNone];
}
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
            sourceSlice:(NSUInteger)sourceSlice
            sourceLevel:(NSUInteger)sourceLevel
           sourceOrigin:(MTLOrigin)sourceOrigin
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin {
  const char* method = "copyFromTexture:toTexture";
  if (![self isOpen:method]) return;
  HMTexture* source = [self useTexture:sourceTexture method:method];
  HMTexture* destination = source ? [self useTexture:destinationTexture method:method] : nil;
  if (!destination) return;
  HMPixels from, to;
  std::string what = "the textures' pixels have " + Number(source->_layout.pixel_bytes) + " and " +
                     Number(destination->_layout.pixel_bytes) + " bytes";
  if (source->_layout.pixel_bytes != destination->_layout.pixel_bytes ||
      ![source locate:{sourceOrigin, sourceSize}
                level:sourceLevel
                slice:sourceSlice
            rowStride:0
          imageStride:0
               pixels:&from
                 what:&what] ||
      ![destination locate:{destinationOrigin, sourceSize}
                     level:destinationLevel
                     slice:destinationSlice
                 rowStride:0
               imageStride:0
                    pixels:&to
                      what:&what]) {
    [self fail:kInvalidResource message:std::string("[") + method + "] " + what];
    return;
  }
  [self addBox:from
            to:to.texture
          from:from.texture
           row:from.texture_row
         image:from.texture_image
         toRow:to.texture_row
       toImage:to.texture_image];
}
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture toTexture:(id<MTLTexture>)destinationTexture {
  const char* method = "copyFromTexture:toTexture";
  if (![self isOpen:method]) return;
  HMTexture* source = [self useTexture:sourceTexture method:method];
  HMTexture* destination = source ? [self useTexture:destinationTexture method:method] : nil;
  if (!destination) return;
  const metallib_texture &a = source->_layout, &b = destination->_layout;
  if (a.width != b.width || a.height != b.height || a.depth != b.depth || a.levels != b.levels ||
      a.array_length != b.array_length) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] the textures differ in size, levels or slices"];
    return;
  }
  for (NSUInteger level = 0; level < a.levels; ++level) {
    MTLSize size = MTLSizeMake(std::max<NSUInteger>(1, a.width >> level),
                               std::max<NSUInteger>(1, a.height >> level),
                               std::max<NSUInteger>(1, a.depth >> level));
    for (NSUInteger slice = 0; slice < a.array_length; ++slice) {
      [self copyFromTexture:source
                sourceSlice:slice
                sourceLevel:level
               sourceOrigin:MTLOriginMake(0, 0, 0)
                 sourceSize:size
                  toTexture:destination
           destinationSlice:slice
           destinationLevel:level
          destinationOrigin:MTLOriginMake(0, 0, 0)];
    }
  }
}
- (void)synchronizeTexture:(id<MTLTexture>)texture slice:(NSUInteger)slice level:(NSUInteger)level {
  if ([self isOpen:"synchronizeTexture"]) [self useTexture:texture method:"synchronizeTexture"];
}

@end
