// The CPU backend: kernels run as loops over threadgroups on all processors.
#include "hostmetal/src/driver.h"

#include <fcntl.h>
#include <fenv.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <fstream>
#include <new>
#include <optional>
#include <string>

#include "hostmetal/src/cpu/checks.h"
#include "hostmetal/src/cpu/deadline.h"
#include "hostmetal/src/cpu/memory.h"
#include "hostmetal/src/cpu/module.h"
#include "hostmetal/src/cpu/page_fault.h"
#include "hostmetal/src/cpu/workers.h"
#include "hostmetal/src/dispatch/thread_pool.h"

// Boost.Context's primitives, which compiled kernels with barriers switch their fibers with.
extern "C" metallib_transfer jump_fcontext(void* to, void* data);
extern "C" void* make_fcontext(void* stack_top, size_t size, void (*entry)(metallib_transfer));

namespace hostmetal {
namespace {

constexpr metallib_host kHost = {jump_fcontext, make_fcontext};
// Guess for the first launch of a kernel.
constexpr uint64_t kUnknownNsPerThread = 4;
constexpr size_t kCopyPiece = size_t{256} << 10;

// Scratch memory of one thread: mapped once, grown when a launch needs more.
class Scratch {
 public:
  ~Scratch() { Release(); }
  void* Get(size_t bytes) {
    if (bytes <= size_) return memory_;
    Release();
    size_t size = (bytes + 65535) / 65536 * 65536;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    memory_ = memory;
    size_ = size;
    return memory_;
  }

 private:
  void Release() {
    if (memory_) munmap(memory_, size_);
    memory_ = nullptr;
    size_ = 0;
  }
  void* memory_ = nullptr;
  size_t size_ = 0;
};

thread_local Scratch scratch;

// Kernels run with the processor's default rounding and, without fast math, with subnormals, whatever
// the program does on its own threads: TensorFlow flushes subnormals on those that run ops, and a
// thread inherits that from the one that starts it.
class KernelFloats {
 public:
#if defined(__x86_64__)
  KernelFloats() : saved_(_mm_getcsr()) {}
  ~KernelFloats() { _mm_setcsr(saved_); }
  // As fast math of Apple's GPUs does. Halves keep theirs, as neither bit applies to them.
  void Set(bool flushes) {
    constexpr unsigned kDefault = 0x1f80, kToZero = 0x8000, kAreZero = 0x0040;
    _mm_setcsr(flushes ? kDefault | kToZero | kAreZero : kDefault);
  }

 private:
  unsigned saved_;
#else
  KernelFloats() { fegetenv(&saved_); }
  ~KernelFloats() { fesetenv(&saved_); }
  void Set(bool) { fesetenv(FE_DFL_ENV); }

 private:
  fenv_t saved_;
#endif
};

// One dispatch of a batch; its threadgroups have the numbers [begin, begin + groups) there.
struct Part {
  const Kernel* kernel;
  metallib_launch launch;
  metallib_fault fault;
  End end;  // written with `fault`, of which nothing else is known where this is not kDone
  uint64_t page_address;
  uint64_t begin;
  uint64_t groups;
  size_t scratch_bytes;
};

struct Batch {
  Part* parts;
  size_t count;
  Deadline* deadline;  // nullptr without a timeout
  std::atomic<bool> out_of_memory{false};
};

// Unless the launch has a fault already.
void RecordEnd(Part* part, End end, uint64_t address) {
  metallib_fault& f = part->fault;
  uint32_t none = 0;
  if (!__atomic_compare_exchange_n(&f.state, &none, 1u, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_RELAXED)) {
    return;
  }
  part->end = end;
  part->page_address = address;
  __atomic_store_n(&f.state, 2u, __ATOMIC_RELEASE);
}

void RunGroups(void* context, uint64_t first, uint64_t count) {
  KernelFloats floats;
  auto* batch = static_cast<Batch*>(context);
  std::optional<Deadline::Thread> timed;
  if (batch->deadline) timed.emplace(batch->deadline);
  const std::atomic<bool>* expired = batch->deadline ? &batch->deadline->expired() : nullptr;
  Part* part = std::upper_bound(batch->parts, batch->parts + batch->count, first,
                                [](uint64_t at, const Part& p) { return at < p.begin; }) -
               1;
  while (count) {
    uint64_t local = first - part->begin;
    uint64_t here = std::min(count, part->groups - local);
    if (here) {
      void* memory = scratch.Get(part->scratch_bytes);
      if (!memory && part->scratch_bytes) {
        batch->out_of_memory = true;
        return;
      }
      floats.Set(part->kernel->entry->flags & METALLIB_KERNEL_FLUSHES);
      uint64_t address;
      End end =
          RunGuarded(*part->kernel->entry, part->launch, local, here, memory, expired, &address);
      if (end != End::kDone) RecordEnd(part, end, address);
    }
    first += here;
    count -= here;
    ++part;
  }
}

std::string Triple(const uint32_t* v) {
  return "(" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) +
         ")";
}

// The shader's argument at the place of the fault; null for static threadgroup memory.
const metallib_argument* ArgumentOf(const metallib_kernel& kernel, const metallib_fault& f) {
  const bool threadgroup = f.argument_kind == METALLIB_THREADGROUP;
  for (uint32_t i = 0; i < kernel.n_arguments; ++i) {
    const metallib_argument& a = kernel.arguments[i];
    if (a.kind == METALLIB_TEXTURE || a.kind == METALLIB_SAMPLER || a.index != f.index) continue;
    if ((a.kind == METALLIB_THREADGROUP) == threadgroup) return &a;
  }
  return nullptr;
}

// " (index 3)": where a pointer was subscripted.
std::string IndexOf(const metallib_argument* a, int64_t offset) {
  if (!a || a->pointee_size == 0 || a->flags & METALLIB_ARG_REFERENCE) return "";
  const int64_t size = a->pointee_size, index = offset / size - (offset % size < 0);
  return " (index " + std::to_string(index) + ")";
}

Failure Explain(const metallib_fault& f, const metallib_kernel& kernel) {
  std::string where = std::string("[") + (f.kernel ? f.kernel : "?") + "] ";
  std::string place = " by thread " + Triple(f.thread) + " of threadgroup " + Triple(f.threadgroup);
  if (f.thread[0] == UINT32_MAX) place = " in threadgroup " + Triple(f.threadgroup);
  std::string target = f.argument_kind == METALLIB_THREADGROUP
                           ? (f.index == 0xffff ? std::string("static threadgroup memory")
                                                : "threadgroup(" + std::to_string(f.index) + ")")
                           : "buffer(" + std::to_string(f.index) + ")";
  const metallib_argument* argument = ArgumentOf(kernel, f);
  if (argument) target += std::string(" '") + argument->name + "'";
  switch (f.kind) {
    case METALLIB_FAULT_READ:
    case METALLIB_FAULT_WRITE:
      return {kPageFault, where + (f.kind == METALLIB_FAULT_READ ? "read of " : "write of ") +
                              std::to_string(f.length) + " bytes at offset " +
                              std::to_string(f.offset) + IndexOf(argument, f.offset) + " of " +
                              target + ", which has " + std::to_string(f.binding_length) +
                              " bytes," + place +
                              (f.message ? std::string(" at ") + f.message : "")};
    case METALLIB_FAULT_UNBOUND:
      return {kInvalidResource,
              where + "access through " + target + ", which is not bound," + place};
    default:
      return {kInternal, where + (f.message ? f.message : "unknown fault") + place};
  }
}

// Threadgroup arguments without a length point below this, where nothing is ever mapped.
constexpr uint64_t kLowest = 65536;

Failure ExplainPageFault(const Part& part) {
  const metallib_kernel& kernel = *part.kernel->entry;
  std::string address =
      part.page_address == UINT64_MAX ? "" : " " + std::to_string(part.page_address);
  std::string message =
      std::string("[") + kernel.name + "] access to an address" + address + " where no memory is";
  for (uint32_t i = 0; i < kernel.n_arguments; ++i) {
    const metallib_argument& a = kernel.arguments[i];
    if (a.kind == METALLIB_THREADGROUP && !part.launch.threadgroup_lengths[a.index] &&
        part.page_address < kLowest) {
      return {kPageFault, message + "; threadgroup(" + std::to_string(a.index) + ") '" + a.name +
                              "' has no length: call setThreadgroupMemoryLength:atIndex:"};
    }
  }
  return {kPageFault, message + "; METAL_DEVICE_WRAPPER_TYPE=1 says which access it is"};
}

Failure ExplainTimeout(const Part& part) {
  char seconds[32];
  snprintf(seconds, sizeof seconds, "%g", double(Timeout()) * 1e-9);
  return {kTimeout, std::string("[") + part.kernel->entry->name + "] did not end within " +
                        seconds + " s, the time that HOSTMETAL_TIMEOUT gives a dispatch"};
}

// Copies with zeros behind, for a batch's references to more bytes than their buffers have; the kernels' writes to
// the existing bytes come back at the end.
class Longer {
 public:
  void Add(const DispatchCommand& c) {
    for (uint32_t bits = c.shorter; bits; bits &= bits - 1) {
      const auto index = uint32_t(__builtin_ctz(bits));
      const metallib_argument& a = *ReferenceAt(*c.kernel->entry, index);
      metallib_buffer& bound = c.buffers[index];
      // Twice: the second is the old content.
      const size_t size = (a.pointee_size + kAlignment - 1) / kAlignment * kAlignment;
      auto* copy = static_cast<char*>(::operator new(2 * size, std::align_val_t(kAlignment)));
      memset(copy, 0, 2 * size);
      memcpy(copy, bound.address, bound.length);
      memcpy(copy + size, bound.address, bound.length);
      copies_.push_back({static_cast<char*>(bound.address), copy, size, bound.length});
      bound = {copy, a.pointee_size};
    }
  }
  ~Longer() {
    for (const Copy& c : copies_) {
      for (size_t i = 0; i < c.length; ++i) {
        if (c.copy[i] != c.copy[c.size + i]) c.original[i] = c.copy[i];
      }
      ::operator delete(c.copy, std::align_val_t(kAlignment));
    }
  }

 private:
  static constexpr size_t kAlignment = 64;
  struct Copy {
    char *original, *copy;
    size_t size, length;
  };
  std::vector<Copy> copies_;
};

class CpuStream : public Stream {
 public:
  Failure Dispatch(const DispatchCommand* commands, size_t count) override {
    Part single;
    std::vector<Part> many;
    Part* parts = &single;
    if (count > 1) {
      many.resize(count);
      parts = many.data();
    }
    uint64_t total = 0;
    uint64_t expected_ns = 0;
    Longer longer;
    std::optional<CheckedBatch> checked;
    if (ChecksKernels()) checked.emplace(count);
    for (size_t i = 0; i < count; ++i) {
      const DispatchCommand& c = commands[i];
      Part& p = parts[i];
      if (c.shorter) longer.Add(c);
      p.kernel = c.kernel;
      memset(&p.fault, 0, sizeof p.fault);
      p.end = End::kDone;
      metallib_launch& l = p.launch;
      l.size = sizeof l;
      l.flags = 0;
      l.reserved = 0;
      std::copy_n(c.threads, 3, l.threads);
      std::copy_n(c.threadgroup_size, 3, l.threadgroup_size);
      std::copy_n(c.threadgroups, 3, l.threadgroups);
      l.buffers = c.buffers;
      l.threadgroup_lengths = c.threadgroup_lengths;
      l.constants = c.kernel->constants.data();
      l.host = &kHost;
      l.fault = &p.fault;
      l.checks = checked ? checked->Of(i, *c.kernel, l) : nullptr;
      l.log = LogOf(*c.kernel);
      p.scratch_bytes = c.kernel->entry->scratch_size(&l);
      p.begin = total;
      p.groups = uint64_t(c.threadgroups[0]) * c.threadgroups[1] * c.threadgroups[2];
      total += p.groups;
      uint64_t cost = c.kernel->group_cost.load(std::memory_order_relaxed);
      if (!cost) {
        cost = 1000 * kUnknownNsPerThread * c.threadgroup_size[0] * c.threadgroup_size[1] *
               c.threadgroup_size[2];
      }
      expected_ns += p.groups * cost / 1000;
    }
    if (!total) return {};
    std::optional<Deadline> deadline;
    if (Timeout()) deadline.emplace(Timeout());
    Batch batch{parts, count, deadline ? &*deadline : nullptr};
    uint64_t spent = 0;
    if (checked)
      RunGroups(&batch, 0, total);  // on one thread, whose history they share
    else
      spent = Workers::Get().Run(RunGroups, &batch, total, expected_ns);
    const bool expired = deadline && deadline->expired();
    if (count == 1 && !expired && !checked) Learn(*commands[0].kernel, spent, total);
    if (batch.out_of_memory) {
      return {kOutOfMemory, std::string("[") + commands[0].kernel->entry->name +
                                "] no memory for the threadgroups' scratch space"};
    }
    Failure reports = checked ? checked->Reports() : Failure{};
    for (size_t i = 0; i < count; ++i) {
      if (!__atomic_load_n(&parts[i].fault.state, __ATOMIC_ACQUIRE)) continue;
      switch (parts[i].end) {
        case End::kPageFault:
          return ExplainPageFault(parts[i]);
        case End::kTimeout:
          return ExplainTimeout(parts[i]);
        case End::kDone:
          return Explain(parts[i].fault, *parts[i].kernel->entry);
      }
    }
    return reports;
  }

  Failure Copy(void* destination, const void* source, size_t bytes) override {
    MarkWritten(destination, bytes);
    auto* to = static_cast<char*>(destination);
    auto* from = static_cast<const char*>(source);
    if (from < to + bytes && to < from + bytes) {
      memmove(to, from, bytes);
      return {};
    }
    Range range{to, from, 0, bytes};
    Pieces(range, [](void* context, uint64_t first, uint64_t count) {
      auto* r = static_cast<Range*>(context);
      size_t at = first * kCopyPiece;
      memcpy(r->to + at, r->from + at, std::min<size_t>(count * kCopyPiece, r->bytes - at));
    });
    return {};
  }

  Failure Fill(void* destination, uint8_t value, size_t bytes) override {
    MarkWritten(destination, bytes);
    Range range{static_cast<char*>(destination), nullptr, value, bytes};
    Pieces(range, [](void* context, uint64_t first, uint64_t count) {
      auto* r = static_cast<Range*>(context);
      size_t at = first * kCopyPiece;
      memset(r->to + at, r->value, std::min<size_t>(count * kCopyPiece, r->bytes - at));
    });
    return {};
  }

  Failure Read(void* host, const void* source, size_t bytes) override {
    memcpy(host, source, bytes);
    return {};
  }

  Failure Finish() override { return {}; }

 private:
  struct Range {
    char* to;
    const char* from;
    uint8_t value;
    size_t bytes;
  };

  static void Pieces(Range& range, Workers::Body body) {
    if (!range.bytes) return;
    uint64_t pieces = (range.bytes + kCopyPiece - 1) / kCopyPiece;
    Workers::Get().Run(body, &range, pieces, range.bytes / 8);  // about 8 bytes per nanosecond
  }

  static void Learn(const Kernel& kernel, uint64_t spent_ns, uint64_t groups) {
    uint64_t now = std::max<uint64_t>(1, spent_ns * 1000 / groups);
    uint64_t old = kernel.group_cost.load(std::memory_order_relaxed);
    kernel.group_cost.store(old ? (3 * old + now) / 4 : now, std::memory_order_relaxed);
  }
};

uint64_t PhysicalMemory() {
  uint64_t bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  // A container may have less.
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    uint64_t limit;
    if (file >> limit && limit) bytes = std::min(bytes, limit);
  }
  return bytes;
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "CPU";
}

// The meaning of a SharedName here: a file that a process has open.
struct Shared {
  pid_t process;
  int file;
  size_t bytes;
};

bool Map(const Shared& shared, int file, void** address) {
  struct stat found;
  if (fstat(file, &found) != 0 || size_t(found.st_size) < shared.bytes) return false;
  void* memory = mmap(nullptr, shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return false;
  *address = memory;
  return true;
}

class Cpu : public Driver {
 public:
  // One of `count` devices.
  Cpu(size_t number, size_t count)
      : pool_(std::min<size_t>(PhysicalMemory() / 8, size_t{1} << 30) / count) {
    info_.name = "hostmetal (" + ProcessorName() + ")";
    if (number > 0) info_.name += " #" + std::to_string(number);
    info_.registry_id = 0x686f73746d746c00 + number;  // "hostmtl"
    info_.memory_bytes = PhysicalMemory() / count;
    info_.unified_memory = true;
    info_.cores = ProcessorCount();
    info_.wide_vectors = WideVectors();
  }

  const DeviceInfo& info() const override { return info_; }

  bool Allocate(size_t bytes, bool zeroed, Storage storage, Allocation* allocation) override {
    size_t size = 0;
    void* block = pool_.Allocate(bytes, zeroed, &size);
    if (!block) return false;
    *allocation = {block, block, size};
    if (storage == Storage::kPrivate) AddFresh(block, bytes);
    return true;
  }

  void Free(const Allocation& allocation) override {
    RemoveFresh(allocation.device);
    pool_.Free(allocation.device, allocation.size);
  }

  bool Transfer(void* destination, const void* source, size_t length) override {
    MarkWritten(destination, length);
    memcpy(destination, source, length);
    return true;
  }
  bool Fill(void* destination, uint8_t value, size_t length) override {
    MarkWritten(destination, length);
    memset(destination, value, length);
    return true;
  }
  bool Borrow(void* memory, size_t bytes, Allocation* allocation) override {
    *allocation = {memory, memory, bytes};
    return true;
  }
  void Return(const Allocation&) override {}
  bool Share(size_t bytes, SharedName* name, void** address) override {
    // Without a name in any folder: it goes with the last process that has it.
    const int file = memfd_create("hostmetal shared", MFD_CLOEXEC);
    if (file < 0) return false;
    const Shared found = {getpid(), file, bytes};
    if (posix_fallocate(file, 0, off_t(bytes)) != 0 || !Map(found, file, address)) {
      close(file);
      return false;
    }
    static_assert(sizeof found <= sizeof *name, "it has to fit");
    memset(name, 0, sizeof *name);
    memcpy(name, &found, sizeof found);
    return true;
  }
  bool OpenShared(const SharedName& name, void** address) override {
    Shared wanted;
    memcpy(&wanted, &name, sizeof wanted);
    const std::string path =
        "/proc/" + std::to_string(wanted.process) + "/fd/" + std::to_string(wanted.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    const bool mapped = Map(wanted, file, address);
    close(file);
    return mapped;
  }

  std::shared_ptr<Module> LoadFile(const std::string& path, bool checked,
                                   Failure* failure) override {
    return LoadModuleFile(path, checked, failure);
  }

  std::shared_ptr<Module> LoadData(std::string_view bytes, const std::string& name, bool checked,
                                   Failure* failure) override {
    return LoadModuleData(bytes, name, checked, failure);
  }

  std::string CompilerTarget() const override { return ""; }
  Failure Prepare(Kernel*) override { return {}; }
  std::unique_ptr<Stream> NewStream() override { return std::make_unique<CpuStream>(); }

 private:
  DeviceInfo info_;
  MemoryPool pool_;
};

}  // namespace

const std::vector<Driver*>& CpuDrivers(size_t count) {
  static const auto* drivers = [count] {
    auto* made = new std::vector<Driver*>;
    for (size_t i = 0; i < count; ++i) made->push_back(new Cpu(i, count));
    return made;
  }();
  return *drivers;
}

}  // namespace hostmetal
