// The interface of a backend: memory, compiled kernels, and streams that run them. The API above it
// never sees how; the CPU is one backend (hostmetal/src/cpu), NVIDIA's GPUs are another
// (hostmetal/src/cuda).
#ifndef HOSTMETAL_SRC_DRIVER_H_
#define HOSTMETAL_SRC_DRIVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hostmetal/msl/metallib_abi.h"
#include "hostmetal/src/sync.h"

namespace hostmetal {

// Values of MTLCommandBufferError and MTLLibraryError; the API layer knows which domain is meant.
enum FailureCode {
  kNoFailure = 0,
  kInternal = 1,
  kTimeout = 2,
  kPageFault = 3,
  kOutOfMemory = 8,
  kInvalidResource = 9,

  kLibraryUnsupported = 1,
  kLibraryInternal = 2,
  kLibraryCompileFailure = 3,
  kLibraryFunctionNotFound = 5,
  kLibraryFileNotFound = 6,
};

struct Kernel;

struct Failure {
  int code = kNoFailure;
  std::string message;
  explicit operator bool() const { return code != kNoFailure; }
};

struct DeviceInfo {
  std::string name;
  uint64_t registry_id = 0;
  uint64_t memory_bytes = 0;  // the limit of all buffers together
  bool unified_memory = true;
  uint32_t cores = 0;  // that run threadgroups beside each other
  uint32_t threadgroup_bytes = METALLIB_MAX_THREADGROUP_MEMORY;  // that a dispatch may pass
  bool wide_vectors = false;  // a processor whose vectors have 512 bits, and which is to use them
};

// The users of a block of memory. kUpload: one writes it once, and the other reads it once.
enum class Storage { kShared, kPrivate, kUpload };

struct Allocation {
  void* device = nullptr;  // address that kernels use
  void* host = nullptr;    // address that the CPU uses; nullptr if it cannot
  size_t size = 0;         // bytes taken, at least those asked for
};

// Another process' name for memory (Driver::Share).
struct SharedName {
  unsigned char bytes[64];
};

// A loaded .metallib. Its kernels' tables stay valid as long as it lives.
class Module {
 public:
  virtual ~Module() = default;
  virtual const std::vector<const metallib_kernel*>& kernels() const = 0;
  // Gives a kernel its code, where its entry has METALLIB_KERNEL_ABSENT: another module and entry.
  virtual Failure Complete(Kernel* kernel);
  // The origin of its kernels, in as many bytes as a digest has: equal for two modules of one
  // origin. "" where that is not known.
  virtual std::string Identity() const { return ""; }
  // Whether a compiler made it here, at this program's word.
  virtual bool FromSource() const { return false; }
  // The text from which the compiler makes the code of kernels that came without, or "".
  virtual std::string Deferred() const { return ""; }
  // The .metallib that it was loaded from.
  virtual std::string Bytes() const { return ""; }
  // Its code for GPUs, if any.
  virtual const metallib_gpu_library* gpu() const = 0;
};

// A kernel with its function constants: the content of a pipeline state.
struct Kernel {
  std::shared_ptr<Module> module;
  const metallib_kernel* entry = nullptr;
  std::vector<metallib_constant_value> constants;  // one for each of entry->constants
  uint32_t max_threads = 0;
  std::shared_ptr<void> code;  // the backend's, from Driver::Prepare
  // Learned cost of one threadgroup in picoseconds, 0 before the first launch: small launches stay
  // on one thread.
  mutable std::atomic<uint64_t> group_cost{0};
};

inline Failure Module::Complete(Kernel* kernel) {
  return {kLibraryInternal, std::string("[newComputePipelineState] function '") +
                                kernel->entry->name +
                                "' has no code, as its library was made by 'metal --on-demand'; "
                                "compile it without"};
}

// One dispatch. Arrays are indexed as in metallib_launch, up to the highest index that the kernel
// declares.
struct DispatchCommand {
  const Kernel* kernel = nullptr;
  uint32_t threads[3];
  uint32_t threadgroup_size[3];
  uint32_t threadgroups[3];
  metallib_buffer* buffers = nullptr;  // of this command alone
  const uint32_t* threadgroup_lengths = nullptr;
  uint32_t host_bytes = 0;  // bit i: buffers[i] are bytes of the command list (setBytes)
  // Bit i: buffers[i] has fewer bytes than the type that the kernel refers to there, which sees zeros behind them.
  uint32_t shorter = 0;
};

// The reference of a command's kernel at an index of buffers.
inline const metallib_argument* ReferenceAt(const metallib_kernel& entry, uint32_t index) {
  for (uint32_t i = 0; i < entry.n_arguments; ++i) {
    const metallib_argument& a = entry.arguments[i];
    if (a.index == index && a.flags & METALLIB_ARG_REFERENCE &&
        (a.kind == METALLIB_DEVICE || a.kind == METALLIB_CONSTANT)) {
      return &a;
    }
  }
  return nullptr;
}

// A place in a stream's work: it has passed when all work before it is done.
class Point {
 public:
  virtual ~Point() = default;
  // Returns when it has passed, with the failure of that work, if any. From any thread, and more
  // than once.
  virtual Failure Wait() = 0;
  // After Wait(): how long the device was busy between the previous point and this one, 0 where
  // that is unknown.
  virtual uint64_t BusyNanoseconds() const { return 0; }
  // After Wait(): when it passed, on Now()'s clock; 0 where that is unknown.
  virtual uint64_t EndNanoseconds() const { return 0; }
};

// Where kernels with METALLIB_KERNEL_LOGS write their messages: what a command buffer uses.
class LogSource {
 public:
  virtual ~LogSource() = default;
  // The log buffer, at the device's address; nullptr where there is no memory for one.
  virtual metallib_log* Log() = 0;
};

// Work of one command queue, in order. Finish() returns when everything given to the stream is
// done; the first failure comes back from the call that caused it, from Finish() or from a point.
class Stream {
 public:
  virtual ~Stream() = default;
  // For all later commands.
  void UseLogs(LogSource* logs) { logs_ = logs; }
  // The commands are independent of each other and may overlap.
  virtual Failure Dispatch(const DispatchCommand* commands, size_t count) = 0;
  virtual Failure Copy(void* destination, const void* source, size_t bytes) = 0;
  virtual Failure Fill(void* destination, uint8_t value, size_t bytes) = 0;
  // Copies to the host's memory, and waits for it.
  virtual Failure Read(void* host, const void* source, size_t bytes) = 0;
  // The time when everything given so far is done, on Now()'s clock: in the slot at once, or when the
  // next point has passed. In another slot, too, unless that is nullptr.
  virtual Failure Sample(std::atomic<uint64_t>* slot, std::atomic<uint64_t>* also) {
    const uint64_t now = Now();
    slot->store(now, std::memory_order_relaxed);
    if (also) also->store(now, std::memory_order_relaxed);
    return {};
  }
  virtual Failure Finish() = 0;
  // The point behind everything given so far, from a stream whose work goes on after its calls have
  // returned; nullptr from others, which have to be finished.
  virtual std::shared_ptr<Point> Mark() { return nullptr; }
  // Later work starts after `point`, which may be another stream's. False: a thread has to wait.
  virtual bool StartAfter(const Point& point) { return false; }

 protected:
  metallib_log* LogOf(const Kernel& kernel) const {
    return logs_ && kernel.entry->flags & METALLIB_KERNEL_LOGS ? logs_->Log() : nullptr;
  }

 private:
  LogSource* logs_ = nullptr;
};

class Driver {
 public:
  virtual ~Driver() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual bool Allocate(size_t bytes, bool zeroed, Storage storage, Allocation* allocation) = 0;
  virtual void Free(const Allocation& allocation) = 0;
  // Copies within and between memory of the host and of the device, and waits for it.
  virtual bool Transfer(void* destination, const void* source, size_t length) = 0;
  // Sets bytes of the device, and waits for it.
  virtual bool Fill(void* destination, uint8_t value, size_t length) = 0;
  // The program's own pages as memory of the device, until Return().
  virtual bool Borrow(void* memory, size_t bytes, Allocation* allocation) = 0;
  virtual void Return(const Allocation& allocation) = 0;
  // Memory that kernels of other processes of this machine may use, too, for as long as this one runs.
  virtual bool Share(size_t bytes, SharedName* name, void** address) = 0;
  // Memory that another process shares, at an address for kernels of this one.
  virtual bool OpenShared(const SharedName& name, void** address) = 0;
  // `checked` asks for bounds checks in every access. `name` is for messages.
  virtual std::shared_ptr<Module> LoadFile(const std::string& path, bool checked,
                                           Failure* failure) = 0;
  virtual std::shared_ptr<Module> LoadData(std::string_view bytes, const std::string& name,
                                           bool checked, Failure* failure) = 0;
  // The value of the shader compiler's --gpu for this device; "" for none.
  virtual std::string CompilerTarget() const = 0;
  // Makes the code of a kernel that has its constants; may lower its max_threads.
  virtual Failure Prepare(Kernel* kernel) = 0;
  virtual std::unique_ptr<Stream> NewStream() = 0;
};

// Reads the environment's setting for dispatches on the processor (HOSTMETAL_TIMEOUT); its error,
// or "".
std::string ReadTimeout();

// Reads what checks it asks for (HOSTMETAL_CHECK, HOSTMETAL_SCHEDULE), on the processor alone; what is wrong with it, or "".
std::string ReadChecks();
// Whether kernels are to be compiled for that.
bool ChecksKernels();
// The name of their form, for digests: init's kernels are others.
const char* CheckedForm();

// The processor as so many devices, which share it and its memory; never destroyed. The first call
// says how many.
const std::vector<Driver*>& CpuDrivers(size_t count);

// NVIDIA's GPUs, looked for at the first call; never destroyed. Where there are none, `why` says
// so.
const std::vector<Driver*>& CudaDrivers(std::string* why);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_DRIVER_H_
