// Shaders that are text, on the processor: for MetalKernel on the CPU (metal_kernel_host.h).
// Python's questions to the compiler are answered here too.

#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/metal_kernel/metal_kernel_call.h"
#include "kernels/metal_kernel/metal_kernel_host.h"
#include "kernels/runtime/platform.h"

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

using namespace metal_kernel;

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
  const auto dtype = static_cast<DType>(tensor.dtype);
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
  // A process forked from here on has none of the threads that do the work, and would wait for
  // ever.
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
    params.push_back(ToParam(param.data, param.bytes, static_cast<DType>(param.dtype)));
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

// The results of C functions.
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
  return static_cast<int>(status.code());
}

Status DefaultDevice(id<MTLDevice>* device) {
  static const id<MTLDevice> found = MTLCreateSystemDefaultDevice();
  *device = found;
  return found != nil ? Status() : NotFound("this machine has no Metal device");
}

// Lines for Python: "name kind written bytes layout", an argument each, by index.
std::string Describe(const Pipeline& pipeline) {
  std::string lines;
  for (const Binding& binding : pipeline.bindings) {
    lines += StrCat(binding.name, ' ',
                    binding.is_buffer        ? "buffer"
                    : binding.is_threadgroup ? "threadgroup"
                                             : "other",
                    ' ', binding.is_written, ' ', static_cast<uint64_t>(binding.pointee), ' ',
                    binding.layout.empty() ? "null" : binding.layout, '\n');
  }
  return lines;
}

Status MakeKernel(const metal_kernels_spec& spec, std::unique_ptr<Kernel>* made) {
  *made = std::make_unique<Kernel>();
  return (*made)->Set(std::string(spec.source, spec.source_size), spec.function,
                      std::vector<std::string>(spec.arguments, spec.arguments + spec.n_arguments),
                      std::vector<int64_t>(spec.copied, spec.copied + spec.n_copied),
                      spec.initialized, spec.atomic, spec.fast_math);
}

struct Kept {
  std::mutex mutex;
  std::map<int64_t, std::unique_ptr<const Kernel>> kernels;
};

Kept& AllKept() {
  static auto* const kept = new Kept();
  return *kept;
}

}  // namespace

Status metal_kernel::FindKept(int64_t handle, const Kernel** kernel) {
  Kept& kept = AllKept();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  const auto found = kept.kernels.find(handle);
  if (found == kept.kernels.end()) {
    return NotFound("[MetalKernelByHandle] handle: this process has no kernel ", handle,
                    "; call a metal_kernel here, or in a tf.function, whose op carries its source");
  }
  *kernel = found->second.get();
  return Status();
}

}  // namespace metal_ops

using metal_ops::Answer;
using metal_ops::Status;
using metal_ops::metal_kernel::Kernel;

int metal_kernels_new(const metal_kernels_spec* spec, void** made, const char** message) {
  return Answer(message, [&]() -> Status {
    std::unique_ptr<Kernel> kernel;
    RETURN_IF_ERROR(metal_ops::MakeKernel(*spec, &kernel));
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

int metal_kernels_find(int64_t handle, metal_kernels_kept* kept, const char** message) {
  return Answer(message, [&]() -> Status {
    const Kernel* kernel = nullptr;
    RETURN_IF_ERROR(metal_ops::metal_kernel::FindKept(handle, &kernel));
    *kept = {const_cast<Kernel*>(kernel), kernel->function.c_str(), kernel->n_threadgroup,
             kernel->atomic};
    return Status();
  });
}

// For Python: keeps a kernel for the process's life. The handle is made of all that the kernel is.
extern "C" __attribute__((visibility("default"))) int metal_kernels_keep(
    int64_t handle, const char* source, size_t size, const char* function,
    const char* const* arguments, size_t n_arguments, const int64_t* copied, size_t n_copied,
    bool initialized, bool atomic, bool fast_math, const char** message) {
  return Answer(message, [&]() -> Status {
    std::unique_ptr<Kernel> kernel;
    RETURN_IF_ERROR(metal_ops::MakeKernel({source, size, function, arguments, n_arguments, copied,
                                           n_copied, initialized, atomic, fast_math},
                                          &kernel));
    metal_ops::Kept& kept = metal_ops::AllKept();
    const std::lock_guard<std::mutex> lock(kept.mutex);
    kept.kernels.emplace(handle, std::move(kernel));  // one that is there may be running
    return Status();
  });
}

// Compiles a kernel's text, and answers with the names of its shaders, a line each.
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
