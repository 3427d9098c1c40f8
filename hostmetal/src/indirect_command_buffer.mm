// MTLIndirectCommandBuffer, its descriptor and its commands.
#include "hostmetal/src/indirect_command_buffer.h"

#include <algorithm>

using hostmetal::Failure;
using hostmetal::IndirectCommand;
using hostmetal::kInternal;
using hostmetal::kInvalidResource;

namespace {

constexpr NSUInteger kMostCommands = 16384;  // as on Apple's devices
constexpr MTLIndirectCommandType kDispatches =
    MTLIndirectCommandTypeConcurrentDispatch | MTLIndirectCommandTypeConcurrentDispatchThreads;

std::string Number(uint64_t n) { return std::to_string(n); }

}  // namespace

namespace hostmetal {

IndirectCommands::IndirectCommands(HMDevice* device, MTLIndirectCommandBufferDescriptor* d,
                                   size_t count)
    : device(device),
      types([d commandTypes]),
      inherits_pipeline([d inheritPipelineState]),
      inherits_buffers([d inheritBuffers]),
      most_buffers([d maxKernelBufferBindCount]),
      most_lengths([d maxKernelThreadgroupMemoryBindCount]),
      slots_(count) {}

std::string IndirectCommands::Outside(NSRange range) const {
  if (range.location <= size() && range.length <= size() - range.location) return "";
  return "commands " + Number(range.location) + " to " + Number(range.location + range.length) +
         " of an indirect command buffer of " + Number(size());
}

bool IndirectCommands::Alike(const IndirectCommands& other) const {
  return device == other.device && types == other.types &&
         inherits_pipeline == other.inherits_pipeline &&
         inherits_buffers == other.inherits_buffers && most_buffers == other.most_buffers &&
         most_lengths == other.most_lengths;
}

IndirectCommands::Slots IndirectCommands::Get(NSRange range) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto first = slots_.begin() + ptrdiff_t(range.location);
  return Slots(first, first + ptrdiff_t(range.length));
}

void IndirectCommands::Put(size_t index, Slots commands) {
  std::lock_guard<std::mutex> lock(mutex_);
  // Replaced commands are released after the lock.
  std::swap_ranges(commands.begin(), commands.end(), slots_.begin() + ptrdiff_t(index));
}

Failure IndirectCommands::Resolve(const IndirectCommand& c, const Inherited& inherited,
                                  Arena* arena, DispatchCommand* out) const {
  if (c.wrong) return c.wrong;
  const HMComputePipelineState* pipeline =
      inherits_pipeline ? inherited.pipeline : c.pipeline.get();
  if (!pipeline) return {kInvalidResource, "no compute pipeline state is set"};
  const std::string kernel = std::string("kernel '") + pipeline->_kernel->entry->name + "': ";
  if (!pipeline->_indirect) {
    return {kInvalidResource,
            kernel + "its pipeline was made without supportIndirectCommandBuffers"};
  }
  Bindings bound;
  if (inherits_buffers) bound.SetBuffers(*inherited.bound);
  for (size_t i = 0; i < c.buffers.size(); ++i) {
    HMBuffer* buffer = c.buffers[i].buffer.get();
    if (!buffer) continue;
    const NSUInteger offset = c.buffers[i].offset;
    bound.buffers[i] = buffer;
    bound.table[i] = {static_cast<char*>(buffer->_allocation.device) + offset,
                      buffer->_length - offset};
  }
  std::copy(c.threadgroup_lengths.begin(), c.threadgroup_lengths.end(), bound.threadgroup_lengths);
  Failure wrong = UnfitGroup(c.group, pipeline);
  uint32_t shorter = 0;
  if (!wrong) wrong = Unfit(bound, pipeline, &shorter);
  if (!wrong) {
    Bind(bound, pipeline, c.group, shorter, arena, out);
    wrong = SetGrid(c.grid, c.type == MTLIndirectCommandTypeConcurrentDispatch, out);
  }
  if (wrong) wrong.message = kernel + wrong.message;
  return wrong;
}

Failure IndirectCommands::Execute(NSRange range, const Inherited& inherited, CommandList& list,
                                  Stream& stream) const {
  const char* method = "[executeCommandsInBuffer] ";
  if (const std::string wrong = Outside(range); !wrong.empty()) {
    return {kInvalidResource, method + wrong};
  }
  auto commands = std::make_shared<const Slots>(Get(range));
  list.kept.push_back(commands);
  std::vector<DispatchCommand> batch;  // of commands that may run together
  const auto flush = [&] {
    Failure failure = batch.empty() ? Failure{} : stream.Dispatch(batch.data(), batch.size());
    batch.clear();
    return failure;
  };
  for (size_t i = 0; i < commands->size(); ++i) {
    const IndirectCommand* c = (*commands)[i].get();
    if (!c) continue;
    Failure failure;
    if (c->barrier) failure = flush();
    if (failure) return failure;
    const bool empty = !c->type || !c->grid.width || !c->grid.height || !c->grid.depth;
    if (empty && !c->wrong) continue;
    DispatchCommand one;
    failure = Resolve(*c, inherited, &list.arena, &one);
    if (failure) {
      failure.message =
          method + std::string("command ") + Number(range.location + i) + ": " + failure.message;
      // Those before it run, as they do before a dispatch of an encoder that is wrong.
      Failure before = flush();
      return before ? before : failure;
    }
    batch.push_back(one);
  }
  return flush();
}

}  // namespace hostmetal

@implementation MTLIndirectCommandBufferDescriptor
- (id)init {
  self = [super init];
  if (self) {
    _maxKernelBufferBindCount = METALLIB_MAX_BUFFERS;
    _maxKernelThreadgroupMemoryBindCount = METALLIB_MAX_BUFFERS;
  }
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLIndirectCommandBufferDescriptor* copy = [[MTLIndirectCommandBufferDescriptor alloc] init];
  [copy setCommandTypes:_commandTypes];
  [copy setInheritPipelineState:_inheritPipelineState];
  [copy setInheritBuffers:_inheritBuffers];
  [copy setMaxVertexBufferBindCount:_maxVertexBufferBindCount];
  [copy setMaxFragmentBufferBindCount:_maxFragmentBufferBindCount];
  [copy setMaxKernelBufferBindCount:_maxKernelBufferBindCount];
  [copy setMaxKernelThreadgroupMemoryBindCount:_maxKernelThreadgroupMemoryBindCount];
  return copy;
}
@synthesize commandTypes = _commandTypes;
@synthesize inheritPipelineState = _inheritPipelineState;
@synthesize inheritBuffers = _inheritBuffers;
@synthesize maxVertexBufferBindCount = _maxVertexBufferBindCount;
@synthesize maxFragmentBufferBindCount = _maxFragmentBufferBindCount;
@synthesize maxKernelBufferBindCount = _maxKernelBufferBindCount;
@synthesize maxKernelThreadgroupMemoryBindCount = _maxKernelThreadgroupMemoryBindCount;
@end

@interface HMIndirectComputeCommand : HMObject <MTLIndirectComputeCommand> {
 @public
  HMIndirectCommandBuffer* _owner;
  NSUInteger _index;
}
@end

@implementation HMIndirectComputeCommand
- (void)dealloc {
  [_owner release];
  [super dealloc];
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  hostmetal::IndirectCommands& all = *_owner->_commands;
  auto* pipeline = (HMComputePipelineState*)state;
  const bool ours =
      [pipeline isKindOfClass:HM_CLASS(HMComputePipelineState)] && pipeline->_device == all.device;
  all.Edit(_index, [&](IndirectCommand& c) -> Failure {
    if (all.inherits_pipeline) {
      return {kInvalidResource,
              "[setComputePipelineState] the buffer was made with inheritPipelineState"};
    }
    if (!ours) {
      return {kInvalidResource,
              "[setComputePipelineState] the pipeline is nil or not of this device"};
    }
    c.pipeline = hostmetal::Retained<HMComputePipelineState*>(pipeline);
    return {};
  });
}

- (void)setKernelBuffer:(id<MTLBuffer>)object offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  hostmetal::IndirectCommands& all = *_owner->_commands;
  auto* buffer = (HMBuffer*)object;
  const bool ours = [buffer isKindOfClass:HM_CLASS(HMBuffer)] && buffer->_device == all.device;
  all.Edit(_index, [&](IndirectCommand& c) -> Failure {
    const std::string where = "[setKernelBuffer] index " + Number(index);
    if (all.inherits_buffers) {
      return {kInvalidResource, where + ": the buffer was made with inheritBuffers"};
    }
    if (index >= all.most_buffers) {
      return {kInvalidResource,
              where + "; maxKernelBufferBindCount is " + Number(all.most_buffers)};
    }
    if (!ours || offset > buffer->_length) {
      return {kInvalidResource,
              where + ": the buffer is nil, not of this device or shorter than the offset " +
                  Number(offset)};
    }
    if (index >= c.buffers.size()) c.buffers.resize(index + 1);
    c.buffers[index] = {hostmetal::Retained<HMBuffer*>(buffer), offset};
    return {};
  });
}

- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  hostmetal::IndirectCommands& all = *_owner->_commands;
  const NSUInteger most = all.device->_driver->info().threadgroup_bytes;
  all.Edit(_index, [&](IndirectCommand& c) -> Failure {
    if (index >= all.most_lengths || length > most) {
      return {kInternal, "[setThreadgroupMemoryLength] " + Number(length) + " bytes at index " +
                             Number(index) + "; the most are " + Number(most) + " bytes and " +
                             Number(all.most_lengths) +
                             " indices (maxKernelThreadgroupMemoryBindCount)"};
    }
    if (index >= c.threadgroup_lengths.size()) c.threadgroup_lengths.resize(index + 1);
    c.threadgroup_lengths[index] = uint32_t(length);
    return {};
  });
}

- (void)setStageInRegion:(MTLRegion)region {
}

- (void)dispatch:(MTLIndirectCommandType)type grid:(MTLSize)grid group:(MTLSize)group {
  hostmetal::IndirectCommands& all = *_owner->_commands;
  all.Edit(_index, [&](IndirectCommand& c) -> Failure {
    if (!(all.types & type)) {
      return {kInvalidResource, std::string(type == MTLIndirectCommandTypeConcurrentDispatch
                                                ? "[concurrentDispatchThreadgroups]"
                                                : "[concurrentDispatchThreads]") +
                                    " the buffer's commandTypes are " + Number(all.types) +
                                    ", without " + Number(type)};
    }
    c.type = type;
    c.grid = grid;
    c.group = group;
    return {};
  });
}
- (void)concurrentDispatchThreadgroups:(MTLSize)grid threadsPerThreadgroup:(MTLSize)group {
  [self dispatch:MTLIndirectCommandTypeConcurrentDispatch grid:grid group:group];
}
- (void)concurrentDispatchThreads:(MTLSize)grid threadsPerThreadgroup:(MTLSize)group {
  [self dispatch:MTLIndirectCommandTypeConcurrentDispatchThreads grid:grid group:group];
}

- (void)setBarrier:(bool)barrier {
  _owner->_commands->Edit(_index, [&](IndirectCommand& c) -> Failure {
    c.barrier = barrier;
    return {};
  });
}
- (void)setBarrier {
  [self setBarrier:true];
}
- (void)clearBarrier {
  [self setBarrier:false];
}
- (void)reset {
  _owner->_commands->Reset(NSMakeRange(_index, 1));
}
@end

@implementation HMIndirectCommandBuffer
+ (HMIndirectCommandBuffer*)newOn:(HMDevice*)device
                       descriptor:(MTLIndirectCommandBufferDescriptor*)descriptor
                            count:(NSUInteger)count
                          options:(MTLResourceOptions)options {
  const MTLIndirectCommandType types = [descriptor commandTypes];
  if (!types || types & ~kDispatches || count == 0 || count > kMostCommands ||
      [descriptor maxKernelBufferBindCount] > METALLIB_MAX_BUFFERS ||
      [descriptor maxKernelThreadgroupMemoryBindCount] > METALLIB_MAX_BUFFERS) {
    return nil;
  }
  HMIndirectCommandBuffer* made = [[HMIndirectCommandBuffer alloc] init];
  made->_device = device;
  made->_options = options;
  made->_commands = new hostmetal::IndirectCommands(device, descriptor, count);
  return made;
}
- (void)dealloc {
  delete _commands;
  [super dealloc];
}
- (id<MTLDevice>)device {
  return _device;
}
- (NSUInteger)size {
  return _commands->size();
}
- (void)resetWithRange:(NSRange)range {
  const std::string wrong = _commands->Outside(range);
  if (wrong.empty()) return _commands->Reset(range);
  fprintf(stderr, "[resetWithRange] %s\n", wrong.c_str());
}
- (id<MTLIndirectComputeCommand>)indirectComputeCommandAtIndex:(NSUInteger)index {
  const std::string wrong = _commands->Outside(NSMakeRange(index, 1));
  if (!wrong.empty()) {
    fprintf(stderr, "[indirectComputeCommandAtIndex] %s\n", wrong.c_str());
    return nil;
  }
  HMIndirectComputeCommand* command = [[HMIndirectComputeCommand alloc] init];
  command->_owner = [self retain];
  command->_index = index;
  return [command autorelease];
}

- (MTLCPUCacheMode)cpuCacheMode {
  return hostmetal::CpuCacheMode(_options);
}
- (MTLStorageMode)storageMode {
  return hostmetal::StorageMode(_options);
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  return hostmetal::HazardTrackingMode(_options) == MTLHazardTrackingModeTracked
             ? MTLHazardTrackingModeTracked
             : MTLHazardTrackingModeUntracked;
}
- (MTLResourceOptions)resourceOptions {
  return _options;
}
- (NSUInteger)allocatedSize {
  return _commands->size() * sizeof(IndirectCommand);
}
- (id<MTLHeap>)heap {
  return nil;
}
- (NSUInteger)heapOffset {
  return 0;
}
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state {
  return MTLPurgeableStateNonVolatile;
}
- (void)makeAliasable {
}
- (BOOL)isAliasable {
  return NO;
}
@end
