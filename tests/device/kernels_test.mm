// The device's kernels called as TensorFlow calls them: from many threads, on few streams, one
// kernel object for all. Their calls of TensorFlow are answered here, by functions that stand
// before its own of the same names: its locks are not instrumented, and ThreadSanitizer would take
// every tensor that it hands over for a race. With "planted" as an argument, a kernel that counts
// its calls in a member is called instead; with "planted locked", by one thread at a time.

#import <Metal/Metal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/tensorflow/part.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variable.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/c/tf_tensor.h"

namespace {

SP_Platform platform = {SP_PLATFORM_STRUCT_SIZE};
SP_PlatformFns platform_fns = {SP_PLATFORM_FNS_STRUCT_SIZE};
SP_Device device = {SP_DEVICE_STRUCT_SIZE};
SP_StreamExecutor se = {SP_STREAMEXECUTOR_STRUCT_SIZE};

std::atomic<int> failures{0};

void Expect(bool condition, const std::string& what) {
  if (condition) return;
  ++failures;
  printf("FAILED %s\n", what.c_str());
}

using metal_ops::CStatus;

// Memory of the device, or of the host as inputs registered with HostMemory have it.
struct Memory {
  SP_DeviceMemoryBase base = {SP_DEVICE_MEMORY_BASE_STRUCT_SIZE};
  std::vector<char> host;
  std::shared_ptr<Memory> whole;  // of a part
  void (*release)(void*) = nullptr;

  ~Memory() {
    if (release != nullptr) {
      release(base.opaque);
    } else if (base.opaque != nullptr) {
      se.deallocate(&device, &base);
    }
  }
  void* data() { return base.opaque != nullptr ? base.opaque : host.data(); }
};

struct Variable;

}  // namespace

// ---- TensorFlow's types, which its headers only name --------------------------------------------

struct TF_Tensor {
  TF_DataType type;
  std::vector<int64_t> dims;
  std::shared_ptr<Memory> memory;

  int64_t count() const {
    int64_t n = 1;
    for (const int64_t dim : dims) n *= dim;
    return n;
  }
  size_t size() const { return count() * TF_DataTypeSize(type); }
};

struct TF_KernelBuilder {
  std::string op, device_type;
  void* (*create)(TF_OpKernelConstruction*);
  void (*compute)(void*, TF_OpKernelContext*);
  void (*destroy)(void*);
  std::vector<TF_DataType> types;
};

struct TF_OpKernelContext {
  SP_Stream stream = nullptr;
  std::vector<TF_Tensor> inputs;
  Variable* variable = nullptr;  // input 0, if the op has one
  TF_Tensor output;
  std::string error;
};

namespace {

struct Variable {
  std::mutex mutex;
  TF_Tensor tensor;
};

std::vector<TF_KernelBuilder>& Registered() {
  static auto* const registered = new std::vector<TF_KernelBuilder>();
  return *registered;
}

TF_Tensor* Allocate(TF_DataType type, const int64_t* dims, int n, TF_Status* status) {
  auto* const tensor = new TF_Tensor{type, {dims, dims + n}, std::make_shared<Memory>()};
  se.allocate(&device, std::max<size_t>(tensor->size(), 1), 0, &tensor->memory->base);
  TF_SetStatus(status, TF_OK, "");
  if (tensor->memory->base.opaque != nullptr) return tensor;
  delete tensor;
  TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "out of device memory");
  return nullptr;
}

}  // namespace

extern "C" {

void* TF_TensorData(const TF_Tensor* tensor) { return tensor->memory->data(); }
TF_DataType TF_TensorType(const TF_Tensor* tensor) { return tensor->type; }
int TF_NumDims(const TF_Tensor* tensor) { return static_cast<int>(tensor->dims.size()); }
int64_t TF_Dim(const TF_Tensor* tensor, int i) { return tensor->dims[i]; }
int64_t TF_TensorElementCount(const TF_Tensor* tensor) { return tensor->count(); }
size_t TF_TensorByteSize(const TF_Tensor* tensor) { return tensor->size(); }
void TF_DeleteTensor(TF_Tensor* tensor) { delete tensor; }

TF_KernelBuilder* TF_NewKernelBuilder(const char* op, const char* device_type,
                                      void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*),
                                      void (*destroy)(void*)) {
  return new TF_KernelBuilder{op, device_type, create, compute, destroy, {}};
}
void TF_KernelBuilder_TypeConstraint(TF_KernelBuilder* builder, const char*, TF_DataType type,
                                     TF_Status* status) {
  builder->types.push_back(type);
  TF_SetStatus(status, TF_OK, "");
}
void TF_KernelBuilder_HostMemory(TF_KernelBuilder*, const char*) {}
void TF_DeleteKernelBuilder(TF_KernelBuilder* builder) { delete builder; }
void TF_RegisterKernelBuilder(const char*, TF_KernelBuilder* builder, TF_Status* status) {
  Registered().push_back(*builder);
  delete builder;
  TF_SetStatus(status, TF_OK, "");
}

// No kernel below has an attribute of another kind.
void TF_OpKernelConstruction_GetAttrBool(TF_OpKernelConstruction*, const char*, TF_Bool* value,
                                         TF_Status* status) {
  *value = 0;
  TF_SetStatus(status, TF_OK, "");
}

int TF_NumInputs(TF_OpKernelContext* context) { return static_cast<int>(context->inputs.size()); }
void TF_GetInput(TF_OpKernelContext* context, int i, TF_Tensor** tensor, TF_Status* status) {
  *tensor = new TF_Tensor(context->inputs[i]);
  TF_SetStatus(status, TF_OK, "");
}
TF_DataType TF_ExpectedOutputDataType(TF_OpKernelContext* context, int) {
  return context->inputs[0].type;
}
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext* context, int, TF_DataType type,
                             const int64_t* dims, int n, size_t, TF_Status* status) {
  TF_Tensor* const tensor = Allocate(type, dims, n, status);
  if (tensor != nullptr) context->output = *tensor;
  return tensor;
}
TF_Tensor* TF_ForwardInputOrAllocateOutput(TF_OpKernelContext* context, const int*, int, int output,
                                           const int64_t* dims, int n, int* forwarded,
                                           TF_Status* status) {
  *forwarded = -1;
  return TF_AllocateOutput(context, output, context->inputs[0].type, dims, n, 0, status);
}
TF_Tensor* TF_AllocateTemp(TF_OpKernelContext*, TF_DataType type, const int64_t* dims, int n,
                           TF_AllocatorAttributes*, TF_Status* status) {
  return Allocate(type, dims, n, status);
}
SP_Stream TF_GetStream(TF_OpKernelContext* context, TF_Status* status) {
  TF_SetStatus(status, TF_OK, "");
  return context->stream;
}
void TF_OpKernelContext_Failure(TF_OpKernelContext* context, TF_Status* status) {
  context->error = TF_Message(status);
}

}  // extern "C"

// In place of kernels/tensorflow/variable.mm, which asks TensorFlow's own variables.
struct metal_ops::VariableLock::State {
  TF_OpKernelContext* context;
  std::unique_lock<std::mutex> lock;
};
metal_ops::VariableLock::VariableLock(KernelContext* ctx, bool, const std::vector<int>&)
    : state_(new State{ctx->raw(), std::unique_lock(ctx->raw()->variable->mutex)}) {}
metal_ops::VariableLock::~VariableLock() {}
metal_ops::Status metal_ops::VariableLock::Get(int, Tensor* tensor) {
  *tensor = ToTensor(new TF_Tensor(state_->context->variable->tensor));
  return Status();
}
metal_ops::Status metal_ops::VariableLock::Read(int input, Tensor* tensor) {
  return Get(input, tensor);
}
// Linked, and not called here.
metal_ops::Status metal_ops::AssignVariable(KernelContext*, int, int, bool) { abort(); }
metal_ops::Status metal_ops::AssignRef(KernelContext*, int, int, bool, bool) { abort(); }
void metal_ops::ForwardRef(KernelContext*, int, int) { abort(); }

// In place of kernels/tensorflow/part.mm: a part keeps the whole, and goes first.
metal_ops::Status metal_ops::SetPartOutput(KernelContext* ctx, int input, int, const Shape& shape,
                                           void* address, void (*release)(void*)) {
  const TF_Tensor& whole = ctx->raw()->inputs[input];
  TF_Tensor& part = ctx->raw()->output;
  part = {whole.type, shape, std::make_shared<Memory>()};
  part.memory->base.opaque = address;
  part.memory->base.size = part.size();
  part.memory->release = release;
  part.memory->whole = whole.memory;
  return Status();
}

namespace {

// ---- calls --------------------------------------------------------------------------------------

// The mistake that is easiest to make in a kernel: one object is called by many threads.
class PlantedRaceOp {
 public:
  static constexpr char kOp[] = "PlantedRace";
  explicit PlantedRaceOp(metal_ops::KernelConstruction*) {}
  void Compute(metal_ops::KernelContext*) { ++calls_; }

 private:
  int calls_ = 0;
};
REGISTER_METAL_KERNEL(PlantedRaceOp, .Types("T", {TF_FLOAT}));

// One object per op, made by its first caller.
struct Kernel {
  const TF_KernelBuilder* functions;
  void* object;
};

const Kernel& Find(const std::string& op) {
  static std::mutex mutex;
  static auto* const kernels = new std::map<std::string, Kernel>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = kernels->find(op);
  if (found != kernels->end()) return found->second;
  for (const TF_KernelBuilder& builder : Registered()) {
    const bool takes_floats =
        std::find(builder.types.begin(), builder.types.end(), TF_FLOAT) != builder.types.end();
    if (builder.op != op || builder.device_type != "GPU" || !takes_floats) continue;
    return kernels->emplace(op, Kernel{&builder, builder.create(nullptr)}).first->second;
  }
  printf("FAILED no kernel of %s was registered\n", op.c_str());
  exit(1);
}

TF_Tensor Call(const char* op, SP_Stream stream, std::vector<TF_Tensor> inputs,
               Variable* variable = nullptr) {
  const Kernel& kernel = Find(op);
  TF_OpKernelContext context;
  context.stream = stream;
  context.inputs = std::move(inputs);
  context.variable = variable;
  kernel.functions->compute(kernel.object, &context);
  Expect(context.error.empty(), std::string(op) + ": " + context.error);
  return context.output;
}

TF_Tensor OnDevice(SP_Stream stream, const std::vector<float>& values, std::vector<int64_t> dims) {
  CStatus status;
  const std::unique_ptr<TF_Tensor> tensor(
      Allocate(TF_FLOAT, dims.data(), static_cast<int>(dims.size()), status));
  se.memcpy_htod(&device, stream, &tensor->memory->base, values.data(),
                 values.size() * sizeof(float), status);
  // TensorFlow, too, keeps the host's values until the copy is over.
  se.block_host_until_done(&device, stream, status);
  Expect(status.ok(), "copy to the device");
  return *tensor;
}

TF_Tensor OnHost(int32_t value) {
  TF_Tensor tensor{TF_INT32, {}, std::make_shared<Memory>()};
  tensor.memory->host.resize(sizeof(value));
  memcpy(tensor.memory->host.data(), &value, sizeof(value));
  return tensor;
}

std::vector<float> Read(SP_Stream stream, const TF_Tensor& tensor) {
  CStatus status;
  std::vector<float> values(tensor.count());
  se.memcpy_dtoh(&device, stream, values.data(), &tensor.memory->base, tensor.size(), status);
  se.block_host_until_done(&device, stream, status);
  Expect(status.ok(), "copy to the host");
  return values;
}

// ---- what runs ----------------------------------------------------------------------------------

constexpr int kStreams = 3, kThreads = 6, kRounds = 40;

// Some ops one after the other, whose results are whole numbers and thus known to the last bit.
void Round(SP_Stream stream, SP_Stream other, Variable* sum, std::mt19937* random) {
  const int n = 1 + static_cast<int>((*random)() % 3000);
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>((*random)() % 16);
  const TF_Tensor x = OnDevice(stream, values, {n});
  const TF_Tensor twice = Call("AddV2", stream, {x, x});
  const TF_Tensor squared = Call("Square", stream, {twice});
  const TF_Tensor total = Call("AddN", stream, {x, twice, squared});
  const TF_Tensor joined = Call("ConcatV2", stream, {total, Call("Neg", stream, {x}), OnHost(0)});
  const int first = n / 16 * 16;  // where it may begin without a copy
  const TF_Tensor part = Call("Slice", stream, {joined, OnHost(first), OnHost(n)});
  Expect(part.memory->whole == joined.memory, "Slice's memory");
  const TF_Tensor less = Call("Neg", stream, {part});
  const TF_Tensor added = Call("Sum", stream, {joined, OnHost(0)});
  // The other stream goes on with the results that this one is still working at.
  CStatus status;
  se.create_stream_dependency(&device, other, stream, status);
  const TF_Tensor product = Call("Mul", other, {joined, added});
  Call("AssignAddVariableOp", stream, {OnHost(0), OnDevice(stream, {1, 2}, {2})}, sum);

  std::vector<float> expected;
  double expected_sum = 0;
  for (const float v : values) expected.push_back(3 * v + 4 * v * v);
  for (const float v : values) expected.push_back(-v);
  for (const float v : expected) expected_sum += v;
  Expect(Read(stream, joined) == expected, "ConcatV2's result");
  std::vector<float> negated;
  for (int i = 0; i < n; ++i) negated.push_back(-expected[first + i]);
  Expect(Read(stream, less) == negated, "Neg's of a part");
  Expect(Read(stream, added) == std::vector<float>{static_cast<float>(expected_sum)}, "Sum's");
  for (float& v : expected) v *= static_cast<float>(expected_sum);
  Expect(Read(other, product) == expected, "Mul's, on another stream");
}

void ManyThreads() {
  CStatus status;
  SP_Stream streams[kStreams];
  Variable sums[kStreams];
  for (int s = 0; s < kStreams; ++s) {
    se.create_stream(&device, &streams[s], status);
    sums[s].tensor = OnDevice(streams[s], {0, 0}, {2});
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      @autoreleasepool {
        std::mt19937 random(t);
        const int s = t % kStreams;
        for (int i = 0; i < kRounds; ++i) {
          Round(streams[s], streams[(s + 1) % kStreams], &sums[s], &random);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const float calls = kThreads / kStreams * kRounds;
  for (int s = 0; s < kStreams; ++s) {
    const std::vector<float> expected = {calls, 2 * calls};
    Expect(Read(streams[s], sums[s].tensor) == expected, "the variable");
    sums[s].tensor = TF_Tensor();
    se.destroy_stream(&device, streams[s]);
  }
}

void PlantedRace(bool locked) {
  static std::mutex mutex;
  std::atomic<int> arrived{0}, called{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      Find("PlantedRace");
      // One calls after the other, as two accesses at the same instant may both miss the other.
      // Relaxed: that puts them in no order.
      arrived.fetch_add(1, std::memory_order_relaxed);
      while (arrived.load(std::memory_order_relaxed) < 2 ||
             called.load(std::memory_order_relaxed) < t) {
      }
      std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
      if (locked) lock.lock();
      Call("PlantedRace", nullptr, {});
      if (locked) lock.unlock();
      called.fetch_add(1, std::memory_order_relaxed);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    SE_PlatformRegistrationParams params = {SE_PLATFORM_REGISTRATION_PARAMS_STRUCT_SIZE};
    params.platform = &platform;
    params.platform_fns = &platform_fns;
    CStatus status;
    SE_InitPlugin(&params, status);
    SE_CreateDeviceParams create = {SE_CREATE_DEVICE_PARAMS_STRUCT_SIZE};
    create.device = &device;
    platform_fns.create_device(&platform, &create, status);
    SE_CreateStreamExecutorParams executor = {SE_CREATE_STREAM_EXECUTOR_PARAMS_STRUCT_SIZE};
    executor.stream_executor = &se;
    platform_fns.create_stream_executor(&platform, &executor, status);
    if (argc > 1) {
      PlantedRace(argc > 2);
    } else {
      ManyThreads();
    }
    for (const auto& op :
         {"AddV2", "Square", "AddN", "ConcatV2", "Sum", "Neg", "Mul", "AssignAddVariableOp"}) {
      const Kernel& kernel = Find(op);
      kernel.functions->destroy(kernel.object);
    }
    printf("%s\n", failures == 0 ? "ok" : "NOT OK");
    return failures == 0 ? 0 : 1;
  }
}
