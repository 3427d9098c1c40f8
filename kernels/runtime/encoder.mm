// Encoding on the TF_MetalStream: see encoder.h.

#include "kernels/runtime/encoder.h"

#import <Foundation/Foundation.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>

#include "kernels/runtime/labels.h"
#include "kernels/runtime/platform.h"
#include "kernels/runtime/profile.h"

namespace metal_ops {
namespace {

// Positions in the grid are 32-bit `uint` in shaders.
constexpr int64_t kMaxGrid = (int64_t{1} << 32) - 1;

// The limit of setBytes.
constexpr size_t kMaxBytes = 4096;

// The host writes it, the device reads it, and nothing reads it again.
constexpr MTLResourceOptions kUploadOptions =
    MTLResourceStorageModeShared | MTLResourceCPUCacheModeWriteCombined;

// Metal's buffer indices.
constexpr size_t kMaxArguments = 31;

// The group that was asked for, if this pipeline can have it.
Status CheckThreadgroup(const Pipeline& pipeline, const Grid& grid) {
  const int64_t(&group)[3] = grid.group;
  const NSUInteger limits[3] = {pipeline.max_sides.width, pipeline.max_sides.height,
                                pipeline.max_sides.depth};
  int64_t threads = 1;
  bool fits = true;
  for (int i = 0; fits && i < 3; ++i) {
    fits = group[i] >= 1 && static_cast<uint64_t>(group[i]) <= limits[i];
    if (fits) threads *= group[i];
  }
  if (fits && static_cast<uint64_t>(threads) <= pipeline.max_threads) return Status();
  return InvalidArgument("shader '", pipeline.name, "': threadgroups of ", group[0], " x ",
                         group[1], " x ", group[2], " threads; it allows ",
                         static_cast<uint64_t>(pipeline.max_threads), " in all, and ",
                         static_cast<uint64_t>(limits[0]), " x ", static_cast<uint64_t>(limits[1]),
                         " x ", static_cast<uint64_t>(limits[2]), " per side. Use smaller ones");
}

// Threads of a group such that a small grid, whose threads may have rows to themselves, makes groups
// for all cores. Shaders whose threads know their group are left alone.
NSUInteger ShareOfThreads(const Pipeline& pipeline, const Grid& grid) {
  if (pipeline.shares) return pipeline.max_threads;
  const NSUInteger simd = pipeline.simd_width;
  constexpr int64_t kGroups = 32, kMost = 1024;
  int64_t threads = 1;
  for (const int64_t side : {grid.width, grid.height, grid.depth}) {
    threads = std::min(threads * std::min(side, kGroups * kMost), kGroups * kMost);
  }
  const auto share = static_cast<NSUInteger>((threads + kGroups - 1) / kGroups);
  return std::min<NSUInteger>(pipeline.max_threads, (share + simd - 1) / simd * simd);
}

// Fills x first, in whole SIMD groups, then y, then z, up to this pipeline's limits.
MTLSize ThreadgroupSize(const Pipeline& pipeline, const Grid& grid) {
  if (grid.group[0] != 0) {
    return MTLSizeMake(static_cast<NSUInteger>(grid.group[0]),
                       static_cast<NSUInteger>(grid.group[1]),
                       static_cast<NSUInteger>(grid.group[2]));
  }
  const MTLSize limit = pipeline.max_sides;
  const NSUInteger simd = pipeline.simd_width;
  NSUInteger left = ShareOfThreads(pipeline, grid);
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

std::string Describe(const Binding& binding) {
  if (binding.is_threadgroup) return StrCat("'", binding.name, "': threadgroup memory");
  if (!binding.is_buffer) return StrCat("'", binding.name, "': no buffer");
  const std::string scalar = ScalarName(binding.type);
  return StrCat("'", binding.name, "': ", binding.is_written ? "writes " : "reads ",
                scalar.empty() ? StrCat("elements of ", binding.pointee, " bytes") : scalar);
}

// The buffer that is bound for an empty tensor. No shader touches it, but Metal's validation
// refuses an index left open, and bytes (setBytes) where a shader may write.
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

NSString* ToNSString(const char* text) { return [NSString stringWithUTF8String:text]; }

// "Conv2D model/conv/Conv2D": the op and its node.
NSString* LabelOf(const RunningOp* op) {
  if (op == nullptr) return @"metal_ops";
  size_t length = 0;
  const char* const node = op->node(op->context, &length);
  return ToNSString(StrCat(op->type, " ", std::string(node, length)).c_str());
}

ProfiledPass ToPass(const Pipeline& pipeline, MTLSize threads, MTLSize group, uint64_t bytes) {
  ProfiledPass pass;
  pass.name = pipeline.name.c_str();
  pass.number = &pipeline.numbered;
  pass.op = OpScope::Current();
  pass.bytes = bytes;
  const NSUInteger sides[2][3] = {{threads.width, threads.height, threads.depth},
                                  {group.width, group.height, group.depth}};
  for (int i = 0; i < 3; ++i) {
    pass.grid[i] = static_cast<uint32_t>(sides[0][i]);
    pass.group[i] = static_cast<uint32_t>(sides[1][i]);
  }
  return pass;
}

struct Encoding {
  id<TF_MetalStream> stream;
  bool wait;
  Status (*body)(void*, Encoder&);
  void* context;
  Status status;
};

// Nothing may be thrown through dispatch_sync. Whatever was encoded before a failure is harmless
// and still counted.
void RunOnQueue(void* raw) {
  Encoding& encoding = *static_cast<Encoding*>(raw);
  @try {
    bool used = false;
    try {
      Encoder encoder(encoding.stream);
      encoding.status = encoding.body(encoding.context, encoder);
      used = encoder.used();
    } catch (const std::exception& e) {
      encoding.status = Internal(e.what());
    }
    // A waiting caller may need the work encoded before, and nothing more.
    if (encoding.wait) {
      [encoding.stream commitAndWait];
    } else if (used) {
      [encoding.stream commit];
    }
  } @catch (NSException* e) {
    encoding.status = Internal([[e name] UTF8String], ": ", [[e reason] UTF8String]);
  }
}

}  // namespace

Encoder::~Encoder() { EndCompute(); }

Status Encoder::Commands() {
  if (commands_ != nil) return Status();
  commands_ = [stream_ currentCommandBuffer];
  device_ = [commands_ device];
  return commands_ != nil ? Status() : Internal("the stream has no command buffer");
}

void Encoder::EndCompute() {
  if (compute_ == nil) return;
  [compute_ endEncoding];
  [compute_ release];
  compute_ = nil;
}

const char* Value::Check(const Binding& binding) const {
  if (kind_ == kThreadgroup) return binding.is_threadgroup ? nullptr : "is no threadgroup memory";
  if (!binding.is_buffer) return "is no buffer: Launch gives buffers and bytes alone";
  if (read_only_ && binding.is_written) return "is an input, but the shader may write to it";
  if (kind_ == kBytes) {
    if (binding.is_written) return "is written by the shader, so it cannot be given as bytes";
    if (typed_ && element_ != binding.pointee) return "is of another size";
  }
  // An empty tensor of any type has nothing to read.
  if (kind_ == kTensor && typed_ && tensor()->num_elements() > 0 && binding.is_scalar &&
      tensor()->element_bytes() != binding.pointee) {
    return "is of another dtype";
  }
  if (kind_ == kBuffer && typed_ && data_ != nullptr && binding.is_scalar &&
      element_ != binding.pointee) {
    return "is of another dtype";
  }
  return nullptr;
}

std::string Value::Describe() const {
  if (kind_ == kNothing) return "nothing";
  if (kind_ == kReadBack) return "memory to read back";
  if (kind_ == kThreadgroup) return StrCat(size_, " bytes of threadgroup memory");
  if (kind_ == kBuffer) return StrCat("a buffer with elements of ", element_, " bytes");
  if (kind_ == kTensor) return ToString(tensor()->dtype()) + " " + ToString(tensor()->shape());
  if (element_ == size_) return StrCat(size_, " bytes");
  return StrCat(size_ / element_, " times ", element_, " bytes");
}

Status Encoder::Mismatch(const Pipeline& pipeline, Arguments arguments, const std::string& what) {
  std::string takes, given;
  for (const Binding& binding : pipeline.bindings) {
    takes += (takes.empty() ? "" : ", ") + metal_ops::Describe(binding);
  }
  for (const Argument& argument : arguments) {
    given +=
        StrCat(given.empty() ? "" : ", ", "'", argument.name, "': ", argument.value.Describe());
  }
  return Internal("shader '", pipeline.name, "': ", what, ". It takes (", takes, ") and is given (",
                  given, ")");
}

Status Encoder::Bind(const Pipeline& pipeline, Arguments arguments, uint8_t* places) {
  const std::vector<Binding>& bindings = pipeline.bindings;
  uint64_t bound = 0;
  size_t i = 0;
  for (const Argument& argument : arguments) {
    // Mostly they come in the shader's order.
    size_t place = i;
    if (place >= bindings.size() || bindings[place].name != argument.name) {
      for (place = 0; place < bindings.size(); ++place) {
        if (bindings[place].name == argument.name) break;
      }
    }
    if (place == bindings.size()) {
      std::vector<std::string> names;
      for (const Binding& binding : bindings) names.push_back(binding.name);
      const std::string near = NearNames(argument.name, names);
      return Mismatch(pipeline, arguments,
                      StrCat("has no argument '", argument.name, "'",
                             near.empty() ? "" : "; near it are " + near));
    }
    if (bound >> place & 1) {
      return Mismatch(pipeline, arguments, StrCat("'", argument.name, "' is given twice"));
    }
    const char* const wrong = argument.value.Check(bindings[place]);
    if (wrong != nullptr) {
      return Mismatch(pipeline, arguments, StrCat("'", argument.name, "' ", wrong));
    }
    bound |= uint64_t{1} << place;
    places[i++] = static_cast<uint8_t>(place);
  }
  for (size_t place = 0; place < bindings.size() && i < bindings.size(); ++place) {
    if (bound >> place & 1) continue;
    return Mismatch(pipeline, arguments, StrCat("'", bindings[place].name, "' is missing"));
  }
  return Status();
}

Status Encoder::Launch(const Shader& shader, Grid grid, Arguments arguments, const char* file,
                       int line) {
  if (grid.width == 0 || grid.height == 0 || grid.depth == 0) return Status();
  for (const int64_t count : {grid.width, grid.height, grid.depth}) {
    if (count < 0 || count > kMaxGrid) {
      return InvalidArgument(
          "shader '", shader.name(), "' would need a grid of ", grid.width, " x ", grid.height,
          " x ", grid.depth,
          " threads, more than Metal's 2^32 - 1 per dimension; use a smaller batch");
    }
  }
  RETURN_IF_ERROR(Commands());
  const Pipeline* pipeline = nullptr;
  RETURN_IF_ERROR(GetPipeline(device_, shader, &pipeline));
  uint8_t places[kMaxArguments];
  if (arguments.size() > kMaxArguments) {
    return Mismatch(*pipeline, arguments,
                    StrCat("is given ", arguments.size(), " arguments; Metal has ", kMaxArguments,
                           " buffer indices"));
  }
  if (grid.group[0] != 0) RETURN_IF_ERROR(CheckThreadgroup(*pipeline, grid));
  RETURN_IF_ERROR(Bind(*pipeline, arguments, places));
  const MTLSize threads =
      MTLSizeMake(static_cast<NSUInteger>(grid.width), static_cast<NSUInteger>(grid.height),
                  static_cast<NSUInteger>(grid.depth));
  const MTLSize group = ThreadgroupSize(*pipeline, grid);
  void* sampled = nullptr;
  RETURN_IF_ERROR(Set(*pipeline, arguments, places, threads, group, &sampled));
  if (pipeline->last_line.load(std::memory_order_relaxed) != line) Visit(*pipeline, file, line);
  if (Labelled()) [compute_ pushDebugGroup:ToNSString(pipeline->name.c_str())];
  [compute_ dispatchThreads:threads threadsPerThreadgroup:group];
  if (Labelled()) [compute_ popDebugGroup];
  if (sampled != nullptr) {
    if (const ProfilerHooks* const profiler = Profiling()) profiler->after(sampled, compute_);
  }
  return Status();
}

Status Encoder::Set(const Pipeline& pipeline, Arguments arguments, const uint8_t* places,
                    MTLSize threads, MTLSize group, void** sampled) {
  // All that can fail comes before the first call on the encoder: a half-encoded launch cannot be
  // taken back.
  BufferRef refs[kMaxArguments];
  size_t i = 0;
  for (const Argument& argument : arguments) {
    const Value& value = argument.value;
    BufferRef& ref = refs[i++];
    if (value.kind_ == Value::kThreadgroup) continue;
    if (value.kind_ == Value::kTensor) {
      RETURN_IF_ERROR(ResolveBuffer(*value.tensor(), &ref));
    } else if (value.kind_ == Value::kReadBack) {
      ref.buffer = static_cast<const ReadBack*>(value.data_)->buffer_;
    } else if (value.kind_ == Value::kBuffer) {
      ref.buffer = static_cast<id<MTLBuffer>>(const_cast<void*>(value.data_));
    } else if (value.size_ > kMaxBytes) {
      ref.buffer = [[pipeline.device newBufferWithBytes:value.data_
                                                 length:value.size_
                                                options:kUploadOptions] autorelease];
    }
    if (ref.buffer != nil || (value.size_ > 0 && value.size_ <= kMaxBytes)) continue;
    if (value.size_ == 0) ref.buffer = BufferOfNothing(pipeline.device);
    if (ref.buffer == nil) {
      return ResourceExhausted("out of device memory: ", value.size_, " bytes for argument '",
                               argument.name, "' of shader '", pipeline.name, "'");
    }
  }
  const ProfilerHooks* const profiler = Profiling();
  ProfiledPass pass;
  bool samples_launches = false;
  if (profiler != nullptr) {
    uint64_t bytes = 0;
    i = 0;
    for (const Argument& argument : arguments) {
      const Tensor* const tensor = argument.value.tensor();
      const BufferRef& ref = refs[i++];
      bytes += tensor != nullptr ? tensor->byte_size() : [ref.buffer length];
    }
    pass = ToPass(pipeline, threads, group, bytes);
    samples_launches = profiler->samples_launches.load(std::memory_order_relaxed);
    if (!samples_launches) {
      EndCompute();  // times are a pass'
      compute_ =
          [static_cast<id<MTLComputeCommandEncoder>>(profiler->compute(stream_, pass)) retain];
    }
  }
  if (compute_ == nil) compute_ = [[commands_ computeCommandEncoder] retain];
  if (compute_ == nil) return Internal("the command buffer gave no compute encoder");
  if (samples_launches) *sampled = profiler->before(stream_, compute_, pass);
  if (Labelled()) [compute_ setLabel:LabelOf(OpScope::Current())];
  used_ = true;
  [compute_ setComputePipelineState:pipeline.state];
  i = 0;
  for (const Argument& argument : arguments) {
    const NSUInteger index = pipeline.bindings[places[i]].index;
    if (argument.value.kind_ == Value::kThreadgroup) {
      // Metal takes multiples of 16 bytes.
      [compute_ setThreadgroupMemoryLength:(argument.value.size_ + 15) / 16 * 16 atIndex:index];
    } else if (refs[i].buffer != nil) {
      [compute_ setBuffer:refs[i].buffer offset:refs[i].offset atIndex:index];
    } else {
      [compute_ setBytes:argument.value.data_ length:argument.value.size_ atIndex:index];
    }
    ++i;
  }
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
  RETURN_IF_ERROR(Blit(PassKind::kFill, tensor.byte_size(), &blit));
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
  RETURN_IF_ERROR(Blit(PassKind::kCopy, from.byte_size(), &blit));
  [blit copyFromBuffer:source.buffer
           sourceOffset:source.offset
               toBuffer:target.buffer
      destinationOffset:target.offset
                   size:from.byte_size()];
  [blit endEncoding];
  return Status();
}

Status Encoder::Allocate(size_t bytes, ReadBack* read_back) {
  RETURN_IF_ERROR(Commands());
  [read_back->buffer_ release];
  read_back->buffer_ = [device_ newBufferWithLength:std::max<size_t>(bytes, 4)
                                            options:ReadBackOptions()];
  if (read_back->buffer_ == nil) {
    return ResourceExhausted("out of device memory: ", bytes, " bytes to read back");
  }
  return Status();
}

Status Encoder::Counters(LaunchCounters* counters) {
  RETURN_IF_ERROR(Commands());
  return NextCounters(device_, stream_, counters);
}

Status Encoder::MostThreadgroupMemory(size_t* bytes) {
  RETURN_IF_ERROR(Commands());
  *bytes = [device_ maxThreadgroupMemoryLength];
  return Status();
}

Status Encoder::Blit(PassKind kind, uint64_t bytes, id<MTLBlitCommandEncoder>* blit) {
  EndCompute();
  RETURN_IF_ERROR(Commands());
  if (const ProfilerHooks* const profiler = Profiling()) {
    static const NumberedName fill, copy;
    ProfiledPass pass;
    pass.kind = kind;
    pass.name = kind == PassKind::kFill ? "fill" : "copy";
    pass.number = kind == PassKind::kFill ? &fill : &copy;
    pass.op = OpScope::Current();
    pass.bytes = bytes;
    *blit = static_cast<id<MTLBlitCommandEncoder>>(profiler->blit(stream_, pass));
  }
  if (*blit == nil) *blit = [commands_ blitCommandEncoder];
  if (*blit == nil) return Internal("the command buffer gave no blit encoder");
  if (Labelled()) [*blit setLabel:LabelOf(OpScope::Current())];
  used_ = true;
  return Status();
}

Status EncodeOn(id<TF_MetalStream> stream, bool wait, Status (*body)(void*, Encoder&),
                void* context) {
  RETURN_IF_ERROR(DeviceFailure(stream));
  Encoding encoding = {stream, wait, body, context, Status()};
  dispatch_sync_f([stream queue], &encoding, RunOnQueue);
  RETURN_IF_ERROR(encoding.status);
  return DeviceFailure(stream);
}

Status CheckGrid(const char* op, const char* what, int64_t count) {
  if (count <= kMaxGrid) return Status();
  return InvalidArgument(op, ": ", count, " ", what,
                         " are more than the 2^32 - 1 that a Metal kernel counts to; use a "
                         "smaller batch");
}

}  // namespace metal_ops
