// MetalKernel: compiles the shader in its attribute, binds what its arguments are, launches it; on
// the Metal device, and on the processor for the CPU's kernel (metal_kernel_host.h). What Python
// asks of the compiler is here too.

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/metal_kernel/metal_kernel_host.h"
#include "kernels/metal_kernel/metal_kernel_launch.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/runtime/registrar.h"

namespace metal_ops {
namespace {

using Kind = MetalKernelArgument::Kind;

constexpr size_t kMaxArguments = 31;  // Metal's buffer indices

// A shader, and what its arguments are: the attributes of a node.
struct Kernel {
  const ShaderLibrary* library = nullptr;
  std::string function;
  std::vector<MetalKernelArgument> arguments;
  size_t n_threadgroup = 0;
  std::vector<int64_t> copied;
  bool initialized = false;

  Status Set(std::string source, const std::string& name, const std::vector<std::string>& texts,
             std::vector<int64_t> copies, bool is_initialized, bool fast_math) {
    function = name;
    copied = std::move(copies);
    initialized = is_initialized;
    n_threadgroup = CountThreadgroupArguments(texts);
    if (texts.size() > kMaxArguments) {
      return InvalidArgument("[", function, "] takes ", texts.size(), " arguments; Metal has ",
                             kMaxArguments, " buffer indices");
    }
    for (const std::string& text : texts) {
      if (!arguments.emplace_back().Read(text)) {
        return InvalidArgument("[", function,
                               "] arguments: expected '<name>=<kind>:<number>', got '", text, "'");
      }
    }
    return OpenCode(std::move(source), fast_math, &library);
  }
};

// A tensor: what the shader gets of it, and what it may ask of its shape.
struct Array {
  Value value;
  TF_DataType dtype;
  const int64_t* dims;
  size_t rank;
};

int64_t CountElements(const Array& array) {
  int64_t count = 1;
  for (size_t i = 0; i < array.rank; ++i) count *= array.dims[i];
  return count;
}

// Everything of one call. Numbers made of shapes live here until they are encoded.
class Call {
 public:
  Call(const Kernel& kernel, std::vector<Array> inputs, std::vector<Array> outputs,
       std::vector<Value> params)
      : kernel_(kernel),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        params_(std::move(params)) {}

  // Whether what it names is there, and fits. Before anything is encoded.
  Status Bind(const MetalKernelLaunch& launch) {
    for (const MetalKernelArgument& argument : kernel_.arguments) {
      const bool of_shape = argument.kind >= Kind::kShape;
      const size_t limit = argument.kind == Kind::kInput         ? inputs_.size()
                           : argument.kind == Kind::kOutput      ? outputs_.size()
                           : argument.kind == Kind::kParam       ? params_.size()
                           : argument.kind == Kind::kThreadgroup ? launch.threadgroup_bytes.size()
                                                                 : inputs_.size() + outputs_.size();
      if (argument.number >= limit) {
        return InvalidArgument("[", kernel_.function, "] argument '", argument.name,
                               "' stands for number ", argument.number, " of ", limit);
      }
      if (of_shape) RETURN_IF_ERROR(CheckShape(argument));
      bound_.push_back({argument.name.c_str(), ToValue(argument, launch)});
    }
    return Status();
  }

  // With `copy(input, output)` for outputs that begin as an input.
  template <typename Copy>
  Status Run(Encoder& encoder, const MetalKernelLaunch& launch, const Copy& copy) {
    if (!kernel_.copied.empty() && kernel_.copied.size() != outputs_.size()) {
      return InvalidArgument("[", kernel_.function, "] copied: expected ", outputs_.size(),
                             " numbers, got ", kernel_.copied.size());
    }
    bool all_written = kernel_.initialized;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      all_written = all_written || CountElements(outputs_[i]) == 0;
      const int64_t from = kernel_.copied.empty() ? -1 : kernel_.copied[i];
      if (from < 0) continue;
      if (from >= static_cast<int64_t>(inputs_.size())) {
        return InvalidArgument("[", kernel_.function, "] copied: there is no input ", from);
      }
      RETURN_IF_ERROR(copy(static_cast<size_t>(from), i));
      all_written = true;
    }
    const int64_t(&side)[3] = launch.grid;
    if (side[0] == 0 || side[1] == 0 || side[2] == 0) {
      if (all_written) return Initialize(encoder);
      return InvalidArgument("[", kernel_.function, "] grid: ", side[0], " x ", side[1], " x ",
                             side[2],
                             " threads write nothing, but there are outputs with elements");
    }
    RETURN_IF_ERROR(Initialize(encoder));
    const int64_t(&group)[3] = launch.group;
    return encoder.Launch(Shader(kernel_.function).In(kernel_.library),
                          Grid(side[0], side[1], side[2]).InGroupsOf(group[0], group[1], group[2]),
                          bound_);
  }

 private:
  Status Initialize(Encoder& encoder) {
    for (size_t i = 0; kernel_.initialized && i < outputs_.size(); ++i) {
      const uint64_t n = static_cast<uint64_t>(CountElements(outputs_[i]));
      RETURN_IF_ERROR(encoder.Launch(Shader(kernel_.function, "init", i).In(kernel_.library),
                                     Grid::Flat(static_cast<int64_t>(n)),
                                     {{"out", outputs_[i].value}, {"n_elements", n}}));
    }
    return Status();
  }

  const Array& Shaped(size_t i) const {
    return i < inputs_.size() ? inputs_[i] : outputs_[i - inputs_.size()];
  }

  // Shaders see sizes in 32 bits.
  Status CheckShape(const MetalKernelArgument& argument) const {
    const Array& array = Shaped(argument.number);
    constexpr int64_t kMaxInt = 0x7fffffff, kMaxUint = 0xffffffff;
    if (argument.kind == Kind::kSize && CountElements(array) > kMaxUint) {
      return InvalidArgument("[", kernel_.function, "] '", argument.name, "' would be ",
                             CountElements(array), "; it is a uint of 32 bits in shaders");
    }
    for (size_t i = 0; argument.kind == Kind::kShape && i < array.rank; ++i) {
      if (array.dims[i] <= kMaxInt) continue;
      return InvalidArgument("[", kernel_.function, "] '", argument.name, "[", i, "]' would be ",
                             array.dims[i], "; it is an int of 32 bits in shaders");
    }
    return Status();
  }

  Value ToValue(const MetalKernelArgument& argument, const MetalKernelLaunch& launch) {
    switch (argument.kind) {
      case Kind::kInput:
        return inputs_[argument.number].value.ReadOnly();
      case Kind::kOutput:
        return outputs_[argument.number].value;
      case Kind::kParam:
        return params_[argument.number];
      case Kind::kThreadgroup:
        return Value::Threadgroup(static_cast<size_t>(launch.threadgroup_bytes[argument.number]));
      case Kind::kNdim:
        return ints_.emplace_back(static_cast<int32_t>(Shaped(argument.number).rank));
      case Kind::kSize:
        return sizes_.emplace_back(static_cast<uint32_t>(CountElements(Shaped(argument.number))));
      case Kind::kShape:
      case Kind::kStrides:
        break;
    }
    const Array& array = Shaped(argument.number);
    if (argument.kind == Kind::kShape) {
      std::vector<int32_t>& dims = shapes_.emplace_back();
      for (size_t i = 0; i < array.rank; ++i) dims.push_back(static_cast<int32_t>(array.dims[i]));
      return HostArray(dims.data(), static_cast<int64_t>(dims.size()));
    }
    std::vector<int64_t>& strides = strides_.emplace_back(array.rank, 1);
    for (size_t i = array.rank; i-- > 1;) strides[i - 1] = strides[i] * array.dims[i];
    return HostArray(strides.data(), static_cast<int64_t>(strides.size()));
  }

  const Kernel& kernel_;
  const std::vector<Array> inputs_, outputs_;
  const std::vector<Value> params_;
  std::vector<Argument> bound_;
  // Values point into these.
  std::deque<int32_t> ints_;
  std::deque<uint32_t> sizes_;
  std::deque<std::vector<int32_t>> shapes_;
  std::deque<std::vector<int64_t>> strides_;
};

// A number, or the bytes of a struct.
Value ToParam(const void* data, uint64_t bytes, TF_DataType dtype) {
  const size_t element = TF_DataTypeSize(dtype);
  if (element == 0 || bytes == element) {
    switch (bytes) {
      case 1:
        return HostArray(static_cast<const uint8_t*>(data), 1);
      case 2:
        return HostArray(static_cast<const uint16_t*>(data), 1);
      case 4:
        return HostArray(static_cast<const uint32_t*>(data), 1);
      case 8:
        return HostArray(static_cast<const uint64_t*>(data), 1);
    }
  }
  return HostArray(static_cast<const uint8_t*>(data), static_cast<int64_t>(bytes)).Untyped();
}

// ---- on the device
// ---------------------------------------------------------------------------------

class MetalKernelOp {
 public:
  static constexpr char kOp[] = "MetalKernel";

  explicit MetalKernelOp(KernelConstruction* ctx) {
    std::string source, function;
    std::vector<std::string> arguments;
    std::vector<int64_t> copied;
    bool initialized = false, fast_math = false;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("source", &source));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("function", &function));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("arguments", &arguments));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("copied", &copied));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("initialized", &initialized));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("atomic", &atomic_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fast_math", &fast_math));
    OP_REQUIRES_OK(ctx, ctx->GetListSize("Tparams", &n_params_));
    OP_REQUIRES_OK(ctx, ctx->GetListSize("Tout", &n_outputs_));
    OP_REQUIRES_OK(ctx, kernel_.Set(std::move(source), function, arguments, std::move(copied),
                                    initialized, fast_math));
  }

  void Compute(KernelContext* ctx) {
    if (atomic_ && OpDeterminismRequired()) {
      return ctx->Fail(Unimplemented(NotDeterministic(kernel_.function)));
    }
    std::vector<Tensor> tensors(static_cast<size_t>(ctx->num_inputs()));
    for (size_t i = 0; i < tensors.size(); ++i) {
      OP_REQUIRES_OK(ctx, ctx->Input(static_cast<int>(i), &tensors[i]));
    }
    const size_t n_outputs = static_cast<size_t>(n_outputs_);
    MetalKernelLaunch launch;
    const std::string wrong = launch.Read(tensors[0].host<int64_t>(), tensors[0].num_elements(),
                                          kernel_.n_threadgroup, n_outputs);
    OP_REQUIRES(ctx, wrong.empty(), InvalidArgument("[", kernel_.function, "] ", wrong));
    std::vector<Tensor> made(n_outputs);
    for (size_t i = 0; i < n_outputs; ++i) {
      OP_REQUIRES_OK(ctx, ctx->AllocateOutput(static_cast<int>(i), launch.shapes[i], &made[i]));
    }
    const size_t first_param = tensors.size() - static_cast<size_t>(n_params_);
    std::vector<Array> inputs, outputs;
    std::vector<Value> params;
    for (size_t i = 1; i < first_param; ++i) inputs.push_back(ToArray(tensors[i]));
    for (const Tensor& tensor : made) outputs.push_back(ToArray(tensor));
    for (size_t i = first_param; i < tensors.size(); ++i) {
      const Tensor& param = tensors[i];
      params.push_back(ToParam(param.host<char>(), param.byte_size(), param.dtype()));
    }
    Call call(kernel_, std::move(inputs), std::move(outputs), std::move(params));
    OP_REQUIRES_OK(ctx, call.Bind(launch));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
                     return call.Run(encoder, launch, [&](size_t input, size_t output) {
                       return encoder.Copy(tensors[1 + input], made[output]);
                     });
                   }));
  }

 private:
  static Array ToArray(const Tensor& tensor) {
    return {tensor, tensor.dtype(), tensor.shape().data(), tensor.shape().size()};
  }

  Kernel kernel_;
  bool atomic_ = false;
  int32_t n_params_ = 0, n_outputs_ = 0;
};

REGISTER_METAL_KERNEL(MetalKernelOp, .HostMemory("launch").HostMemory("params"));

}  // namespace
}  // namespace metal_ops

// ---- on the processor
// ------------------------------------------------------------------------------

// A stream whose work begins when it is waited for. One call's own.
@interface MetalOpsProcessorStream : NSObject <TF_MetalStream> {
 @public
  id<MTLCommandQueue> _commandQueue;  // not retained
  id<MTLCommandBuffer> _commands;
}
@end

@implementation MetalOpsProcessorStream
- (void)dealloc {
  [_commands release];
  [super dealloc];
}
- (dispatch_queue_t)queue {
  return nullptr;
}
- (id<MTLCommandBuffer>)currentCommandBuffer {
  if (_commands == nil) _commands = [[_commandQueue commandBuffer] retain];
  return _commands;
}
- (void)commit {
}
- (void)commitAndWait {
  [_commands commit];
  [_commands waitUntilCompleted];
}
@end

namespace metal_ops {
namespace {

// A command queue, for one call at a time: each has a thread, which is not made anew for every
// call.
class Queue {
 public:
  explicit Queue(id<MTLDevice> device) {
    std::vector<id<MTLCommandQueue>>& idle = Idle();
    {
      const std::lock_guard<std::mutex> lock(Mutex());
      if (!idle.empty()) {
        queue_ = idle.back();
        idle.pop_back();
      }
    }
    if (queue_ == nil) queue_ = [device newCommandQueue];
  }
  ~Queue() {
    const std::lock_guard<std::mutex> lock(Mutex());
    Idle().push_back(queue_);
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  id<MTLCommandQueue> get() const { return queue_; }

 private:
  static std::mutex& Mutex() {
    static auto* const mutex = new std::mutex();
    return *mutex;
  }
  static std::vector<id<MTLCommandQueue>>& Idle() {
    static auto* const idle = new std::vector<id<MTLCommandQueue>>();
    return *idle;
  }

  id<MTLCommandQueue> queue_ = nil;
};

// Releases the buffers over a call's tensors.
struct Buffers {
  ~Buffers() {
    for (id<MTLBuffer> buffer : list) [buffer release];
  }
  std::vector<id<MTLBuffer>> list;
};

Status ToArray(void* processor, const metal_kernels_array& tensor, Buffers* buffers,
               std::vector<Array>* arrays) {
  const TF_DataType dtype = static_cast<TF_DataType>(tensor.dtype);
  id<MTLBuffer> buffer = nil;
  if (tensor.bytes > 0) {
    buffer = static_cast<id<MTLBuffer>>(NewBufferOver(processor, tensor.data, tensor.bytes));
    if (buffer == nil) return ResourceExhausted("no buffer over ", tensor.bytes, " bytes");
    buffers->list.push_back(buffer);
  }
  arrays->push_back(
      {Value::Buffer(buffer, dtype), dtype, tensor.dims, static_cast<size_t>(tensor.rank)});
  return Status();
}

Status RunOnProcessor(const Kernel& kernel, const metal_kernels_call& call) {
  // Who is forked from here on has none of the threads that do the work, and would wait for ever.
  static const pid_t first = getpid();
  if (getpid() != first) {
    return Internal("[", kernel.function,
                    "] this process was forked from one that had run Metal kernels, whose threads "
                    "did not come along; start it by multiprocessing.get_context('spawn')");
  }
  void* processor = nullptr;
  RETURN_IF_ERROR(ProcessorDevice(StrCat("[", kernel.function, "]").c_str(), &processor));
  MetalKernelLaunch launch;
  const std::string wrong = launch.Read(call.launch, static_cast<int64_t>(call.launch_size),
                                        kernel.n_threadgroup, call.n_outputs);
  if (!wrong.empty()) return InvalidArgument("[", kernel.function, "] ", wrong);
  Buffers buffers;
  std::vector<Array> inputs, outputs;
  std::vector<Value> params;
  for (size_t i = 0; i < call.n_inputs; ++i) {
    RETURN_IF_ERROR(ToArray(processor, call.inputs[i], &buffers, &inputs));
  }
  for (size_t i = 0; i < call.n_outputs; ++i) {
    RETURN_IF_ERROR(ToArray(processor, call.outputs[i], &buffers, &outputs));
  }
  for (size_t i = 0; i < call.n_params; ++i) {
    const metal_kernels_array& param = call.params[i];
    params.push_back(ToParam(param.data, param.bytes, static_cast<TF_DataType>(param.dtype)));
  }
  Call bound(kernel, std::move(inputs), std::move(outputs), std::move(params));
  RETURN_IF_ERROR(bound.Bind(launch));
  MetalOpsProcessorStream* stream = [[[MetalOpsProcessorStream alloc] init] autorelease];
  const Queue queue(static_cast<id<MTLDevice>>(processor));
  stream->_commandQueue = queue.get();
  {
    Encoder encoder(stream);
    RETURN_IF_ERROR(bound.Run(encoder, launch, [&](size_t input, size_t output) -> Status {
      const metal_kernels_array &from = call.inputs[input], &to = call.outputs[output];
      if (from.bytes != to.bytes) {
        return InvalidArgument("[", kernel.function, "] output ", output, " has ", to.bytes,
                               " bytes and begins as an input of ", from.bytes);
      }
      std::memcpy(to.data, from.data, from.bytes);
      return Status();
    }));
    if (!encoder.used()) return Status();
  }
  [stream commitAndWait];
  NSError* error = [stream->_commands error];
  if (error == nil) return Status();
  return Internal([[error localizedDescription] UTF8String]);  // which names the kernel
}

// What C functions answer with.
template <typename Body>
int Answer(const char** message, const Body& body) {
  thread_local std::string said;
  Status status;
  @autoreleasepool {
    @try {
      try {
        status = body();
      } catch (const std::bad_alloc&) {
        status = ResourceExhausted("out of host memory");
      } catch (const std::exception& e) {
        status = Internal(e.what());
      }
    } @catch (NSException* e) {
      status = Internal([[e name] UTF8String], ": ", [[e reason] UTF8String]);
    }
  }
  said = status.message();
  *message = said.c_str();
  return status.code();
}

Status DefaultDevice(id<MTLDevice>* device) {
  static const id<MTLDevice> found = MTLCreateSystemDefaultDevice();
  *device = found;
  return found != nil ? Status() : NotFound("this machine has no Metal device");
}

// Lines for Python: "name kind written bytes type", an argument each, by index.
std::string Describe(const Pipeline& pipeline) {
  std::string lines;
  for (const Binding& binding : pipeline.bindings) {
    const std::string type = ScalarName(binding.type);
    lines += StrCat(binding.name, ' ',
                    binding.is_buffer        ? "buffer"
                    : binding.is_threadgroup ? "threadgroup"
                                             : "other",
                    ' ', binding.is_written, ' ', static_cast<uint64_t>(binding.pointee), ' ',
                    type.empty() ? "-" : type, '\n');
  }
  return lines;
}

}  // namespace
}  // namespace metal_ops

using metal_ops::Answer;
using metal_ops::Kernel;
using metal_ops::Status;

int metal_kernels_new(const metal_kernels_spec* spec, void** made, const char** message) {
  return Answer(message, [&]() -> Status {
    auto kernel = std::make_unique<Kernel>();
    RETURN_IF_ERROR(
        kernel->Set(std::string(spec->source, spec->source_size), spec->function,
                    std::vector<std::string>(spec->arguments, spec->arguments + spec->n_arguments),
                    std::vector<int64_t>(spec->copied, spec->copied + spec->n_copied),
                    spec->initialized, spec->fast_math));
    *made = kernel.release();
    return Status();
  });
}

int metal_kernels_run(void* kernel, const metal_kernels_call* call, const char** message) {
  return Answer(message, [&] {
    return metal_ops::RunOnProcessor(*static_cast<const Kernel*>(kernel), *call);
  });
}

void metal_kernels_delete(void* kernel) { delete static_cast<Kernel*>(kernel); }

// For Python: compiles what a kernel is made of, and answers with the names of its shaders, a line
// each.
extern "C" __attribute__((visibility("default"))) int metal_kernels_functions(
    const char* source, size_t size, bool fast_math, const char** message) {
  thread_local std::string lines;
  lines.clear();
  const int code = Answer(message, [&]() -> Status {
    const metal_ops::ShaderLibrary* library = nullptr;
    id<MTLDevice> device = nil;
    RETURN_IF_ERROR(metal_ops::DefaultDevice(&device));
    RETURN_IF_ERROR(metal_ops::OpenCode(std::string(source, size), fast_math, &library));
    std::vector<std::string> names;
    RETURN_IF_ERROR(metal_ops::ShaderNames(device, library, &names));
    for (const std::string& name : names) lines += name + "\n";
    return Status();
  });
  if (code == 0) *message = lines.c_str();
  return code;
}

// And the arguments of one, from its reflection.
extern "C" __attribute__((visibility("default"))) int metal_kernels_arguments(
    const char* source, size_t size, bool fast_math, const char* function, const char** message) {
  thread_local std::string lines;
  lines.clear();
  const int code = Answer(message, [&]() -> Status {
    const metal_ops::ShaderLibrary* library = nullptr;
    const metal_ops::Pipeline* pipeline = nullptr;
    id<MTLDevice> device = nil;
    RETURN_IF_ERROR(metal_ops::DefaultDevice(&device));
    RETURN_IF_ERROR(metal_ops::OpenCode(std::string(source, size), fast_math, &library));
    RETURN_IF_ERROR(
        metal_ops::GetPipeline(device, metal_ops::Shader(function).In(library), &pipeline));
    lines = metal_ops::Describe(*pipeline);
    return Status();
  });
  if (code == 0) *message = lines.c_str();
  return code;
}
