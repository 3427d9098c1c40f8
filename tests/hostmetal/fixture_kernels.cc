// Kernels for the runtime's tests, written against the ABI by hand: the runtime is tested without
// the shader compiler.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>

#include "hostmetal/msl/metallib_abi.h"

namespace {

struct Position {
  uint32_t group[3];
  uint32_t local[3];
  uint32_t global[3];
  uint32_t index;  // in the threadgroup
};

// Calls body(position) for every thread of the threadgroups, clipped to the grid.
template <typename Body>
void ForEachThread(const metallib_launch* l, uint64_t first, uint64_t count, Body body) {
  for (uint64_t g = first; g < first + count; ++g) {
    Position p;
    p.group[0] = uint32_t(g % l->threadgroups[0]);
    p.group[1] = uint32_t(g / l->threadgroups[0] % l->threadgroups[1]);
    p.group[2] = uint32_t(g / (uint64_t(l->threadgroups[0]) * l->threadgroups[1]));
    p.index = 0;
    for (uint32_t z = 0; z < l->threadgroup_size[2]; ++z) {
      for (uint32_t y = 0; y < l->threadgroup_size[1]; ++y) {
        for (uint32_t x = 0; x < l->threadgroup_size[0]; ++x, ++p.index) {
          uint32_t local[3] = {x, y, z};
          bool inside = true;
          for (int i = 0; i < 3; ++i) {
            p.local[i] = local[i];
            p.global[i] = p.group[i] * l->threadgroup_size[i] + local[i];
            inside &= p.global[i] < l->threads[i];
          }
          if (inside) body(p);
        }
      }
    }
  }
}

template <typename T>
T* Buffer(const metallib_launch* l, int index) {
  return static_cast<T*>(l->buffers[index].address);
}

uint64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

uint64_t NoScratch(const metallib_launch*) { return 0; }

// More than there are addresses for.
uint64_t HungryScratch(const metallib_launch*) { return uint64_t{1} << 60; }

void Noop(const metallib_launch*, uint64_t, uint64_t, void*) {}

// out[i] = a[i] + b[i]
void Add(const metallib_launch* l, uint64_t first, uint64_t count, void*) {
  auto* a = Buffer<const float>(l, 0);
  auto* b = Buffer<const float>(l, 1);
  auto* out = Buffer<float>(l, 2);
  ForEachThread(l, first, count,
                [&](const Position& p) { out[p.global[0]] = a[p.global[0]] + b[p.global[0]]; });
}

// out[i] += amount: wrong when two run at once on the same elements.
void Increment(const metallib_launch* l, uint64_t first, uint64_t count, void*) {
  auto* out = Buffer<uint32_t>(l, 0);
  uint32_t amount = *Buffer<const uint32_t>(l, 1);
  ForEachThread(l, first, count, [&](const Position& p) { out[p.global[0]] += amount; });
}

// out[0..3] = the four words of params
void Params(const metallib_launch* l, uint64_t, uint64_t, void*) {
  memcpy(Buffer<uint32_t>(l, 0), Buffer<const uint32_t>(l, 3), 16);
}

// The buffers it refers to get one more in each of four words, which are copied to out before.
void Raise(const metallib_launch* l, uint64_t, uint64_t, void*) {
  auto* words = Buffer<uint32_t>(l, 1);
  for (int i = 0; i < 4; ++i) Buffer<uint32_t>(l, 0)[i] = words[i]++;
}

// out[linear global position] = 1 + linear position; 3-D and clipped
void Grid(const metallib_launch* l, uint64_t first, uint64_t count, void*) {
  auto* out = Buffer<uint32_t>(l, 0);
  ForEachThread(l, first, count, [&](const Position& p) {
    uint32_t at = (p.global[2] * l->threads[1] + p.global[1]) * l->threads[0] + p.global[0];
    __atomic_fetch_add(&out[at], at + 1, __ATOMIC_RELAXED);
  });
}

// Reports the launch: out[0..2] threadgroup lengths 0..2, out[3] bytes of buffer 0.
void Describe(const metallib_launch* l, uint64_t, uint64_t, void* scratch) {
  auto* out = Buffer<uint32_t>(l, 0);
  for (int i = 0; i < 3; ++i) out[i] = l->threadgroup_lengths[i];
  out[3] = uint32_t(l->buffers[0].length);
  out[4] = reinterpret_cast<uintptr_t>(scratch) % 64 == 0;
  memset(scratch, 1, l->threadgroup_lengths[0] + l->threadgroup_lengths[1]);
}
uint64_t DescribeScratch(const metallib_launch* l) {
  return l->threadgroup_lengths[0] + l->threadgroup_lengths[1];
}

// Busy for *us microseconds a threadgroup.
void Spin(const metallib_launch* l, uint64_t, uint64_t count, void*) {
  uint64_t end = NowNs() + uint64_t(*Buffer<const uint32_t>(l, 0)) * 1000 * count;
  while (NowNs() < end) {
  }
}

// marks[threadgroup] += 1 after 300 microseconds: a launch that returns early, or runs a
// threadgroup twice, shows.
void SlowMark(const metallib_launch* l, uint64_t first, uint64_t count, void*) {
  auto* marks = Buffer<uint32_t>(l, 0);
  for (uint64_t g = first; g < first + count; ++g) {
    uint64_t end = NowNs() + 300000;
    while (NowNs() < end) {
    }
    __atomic_fetch_add(&marks[g], 1, __ATOMIC_RELAXED);
  }
}

// missing[threadgroup] = how many of the first 64 marks are not 1, seen when it runs
void CheckMarks(const metallib_launch* l, uint64_t first, uint64_t count, void*) {
  auto* marks = Buffer<uint32_t>(l, 0);
  auto* missing = Buffer<uint32_t>(l, 1);
  for (uint64_t g = first; g < first + count; ++g) {
    for (int i = 0; i < 64; ++i) missing[g] += __atomic_load_n(&marks[i], __ATOMIC_RELAXED) != 1;
  }
}

// Waits until flag[0] is not 0; shows that something else ran meanwhile. Gives up after 10 s with
// flag[1] = 1.
void WaitFlag(const metallib_launch* l, uint64_t, uint64_t, void*) {
  auto* flag = Buffer<uint32_t>(l, 0);
  uint64_t end = NowNs() + 10000000000u;
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0) {
    if (NowNs() > end) {
      flag[1] = 1;
      return;
    }
  }
}
void SetFlag(const metallib_launch* l, uint64_t, uint64_t, void*) {
  __atomic_store_n(Buffer<uint32_t>(l, 0), 1, __ATOMIC_RELEASE);
}

// log[1 + log[0]++] = value
void Append(const metallib_launch* l, uint64_t, uint64_t, void*) {
  auto* log = Buffer<uint32_t>(l, 0);
  log[1 + log[0]++] = *Buffer<const uint32_t>(l, 1);
}

// out[i] = factor * (offset defined ? offset : -1)
void Constants(const metallib_launch* l, uint64_t first, uint64_t count, void*) {
  float factor;
  int32_t offset = -1;
  memcpy(&factor, l->constants[0].bytes, sizeof factor);
  if (l->constants[1].defined) memcpy(&offset, l->constants[1].bytes, sizeof offset);
  auto* out = Buffer<float>(l, 0);
  ForEachThread(l, first, count, [&](const Position& p) { out[p.global[0]] = factor * offset; });
}

void Fault(const metallib_launch* l, uint64_t first, uint64_t, void*) {
  uint32_t none = 0;
  if (!__atomic_compare_exchange_n(&l->fault->state, &none, 1, false, __ATOMIC_ACQUIRE,
                                   __ATOMIC_RELAXED)) {
    return;
  }
  l->fault->kind = METALLIB_FAULT_WRITE;
  l->fault->kernel = "fault";
  l->fault->argument_kind = METALLIB_DEVICE;
  l->fault->index = 0;
  l->fault->offset = 4096;
  l->fault->length = 4;
  l->fault->binding_length = l->buffers[0].length;
  l->fault->threadgroup[0] = uint32_t(first);
  l->fault->thread[0] = 3;
  __atomic_store_n(&l->fault->state, 2, __ATOMIC_RELEASE);
}

// out[0] = which version of the kernel this is: 2 is that for wider vectors
template <uint32_t kVersion>
void Version(const metallib_launch* l, uint64_t, uint64_t, void*) {
  *Buffer<uint32_t>(l, 0) = kVersion;
}

// Each thread of a group is a fiber; all wait at a barrier, then out[i] = number of arrivals its
// group has counted.
struct Fiber {
  void* context;
  uint32_t index;
};
struct Group {
  uint32_t arrived;
  uint32_t seen[METALLIB_MAX_THREADS];
  const metallib_host* host;
};
constexpr size_t kStack = 16384;
thread_local Group* current_group;
thread_local uint32_t current_index;

void FiberMain(metallib_transfer from) {
  Group* group = current_group;
  uint32_t index = current_index;
  ++group->arrived;
  from = group->host->jump(from.context, nullptr);  // the barrier
  group->seen[index] = group->arrived;
  group->host->jump(from.context, nullptr);
}

void Barrier(const metallib_launch* l, uint64_t first, uint64_t count, void* scratch) {
  auto* group = static_cast<Group*>(scratch);
  auto* stacks = reinterpret_cast<char*>(group + 1);
  uint32_t n = l->threadgroup_size[0];
  auto* out = Buffer<uint32_t>(l, 0);
  for (uint64_t g = first; g < first + count; ++g) {
    group->arrived = 0;
    group->host = l->host;
    void* contexts[METALLIB_MAX_THREADS];
    current_group = group;
    for (uint32_t i = 0; i < n; ++i) {
      current_index = i;
      contexts[i] = l->host->make(stacks + (i + 1) * kStack, kStack, FiberMain);
      contexts[i] = l->host->jump(contexts[i], nullptr).context;
    }
    for (uint32_t i = 0; i < n; ++i) {
      l->host->jump(contexts[i], nullptr);
      out[g * n + i] = group->seen[i];
    }
  }
}
uint64_t BarrierScratch(const metallib_launch* l) {
  return sizeof(Group) + kStack * l->threadgroup_size[0];
}

constexpr metallib_argument Device(const char* name, uint32_t index, const char* type = "uint",
                                   uint32_t size = 4) {
  return {name, type, METALLIB_DEVICE, index, METALLIB_ARG_WRITTEN, size, size, -1};
}
constexpr metallib_argument Input(const char* name, uint32_t index, const char* type = "float") {
  return {name, type, METALLIB_DEVICE, index, 0, 4, 4, -1};
}
constexpr metallib_argument Reference(const char* name, uint32_t index, const char* type = "uint",
                                      uint32_t size = 4) {
  return {name, type, METALLIB_CONSTANT, index, METALLIB_ARG_REFERENCE, size, 4, -1};
}
constexpr metallib_argument Shared(const char* name, uint32_t index) {
  return {name, "float", METALLIB_THREADGROUP, index, METALLIB_ARG_WRITTEN, 4, 4, -1};
}

const metallib_argument kAddArguments[] = {Input("a", 0), Input("b", 1),
                                           Device("out", 2, "float4", 16)};
const metallib_argument kOut[] = {Device("out", 0)};
const metallib_argument kIncrementArguments[] = {Device("out", 0), Reference("amount", 1)};
const metallib_argument kCheckArguments[] = {Device("marks", 0), Device("missing", 1)};
const metallib_argument kAppendArguments[] = {Device("log", 0), Reference("value", 1)};
const metallib_argument kDescribeArguments[] = {Device("out", 0), Shared("x", 0), Shared("y", 1)};
const metallib_argument kSpinArguments[] = {Reference("us", 0)};
const metallib_argument kParamsArguments[] = {Device("out", 0),
                                              Reference("params", 3, "Params", 16)};
const metallib_argument kRaiseArguments[] = {
    Device("out", 0),
    {"words", "Words", METALLIB_DEVICE, 1, METALLIB_ARG_WRITTEN | METALLIB_ARG_REFERENCE, 16, 4,
     -1}};
const metallib_argument kOptionalArguments[] = {
    Device("out", 0),
    {"extra", "float", METALLIB_DEVICE, 5, METALLIB_ARG_OPTIONAL, 4, 4, 0},
};
const metallib_function_constant kConstants[] = {
    {"factor", 0, 3, 4, 1},
    {"offset", 7, 29, 4, 0},
};
const metallib_function_constant kEnable[] = {{"use_extra", 2, 53, 1, 0}};

const metallib_kernel kKernels[] = {
    {"noop", 0, 1024, 0, 0, nullptr, 0, nullptr, NoScratch, Noop},
    {"add", 0, 1024, 0, 3, kAddArguments, 0, nullptr, NoScratch, Add},
    {"increment", 0, 1024, 0, 2, kIncrementArguments, 0, nullptr, NoScratch, Increment},
    {"grid", 0, 1024, 0, 1, kOut, 0, nullptr, NoScratch, Grid},
    {"describe", 0, 256, 1024, 3, kDescribeArguments, 0, nullptr, DescribeScratch, Describe},
    {"spin", 0, 1024, 0, 1, kSpinArguments, 0, nullptr, NoScratch, Spin},
    {"slow_mark", 0, 1024, 0, 1, kOut, 0, nullptr, NoScratch, SlowMark},
    {"check_marks", 0, 1024, 0, 2, kCheckArguments, 0, nullptr, NoScratch, CheckMarks},
    {"wait_flag", 0, 1024, 0, 1, kOut, 0, nullptr, NoScratch, WaitFlag},
    {"set_flag", 0, 1024, 0, 1, kOut, 0, nullptr, NoScratch, SetFlag},
    {"append", 0, 1024, 0, 2, kAppendArguments, 0, nullptr, NoScratch, Append},
    {"constants", 0, 1024, 0, 1, kOut, 2, kConstants, NoScratch, Constants},
    {"optional", 0, 1024, 0, 2, kOptionalArguments, 1, kEnable, NoScratch, Noop},
    {"params", 0, 1024, 0, 2, kParamsArguments, 0, nullptr, NoScratch, Params},
    {"raise", 0, 1024, 0, 2, kRaiseArguments, 0, nullptr, NoScratch, Raise},
    {"fault", 0, 1024, 0, 1, kOut, 0, nullptr, NoScratch, Fault},
    {"barrier", METALLIB_KERNEL_FIBERS, 256, 0, 1, kOut, 0, nullptr, BarrierScratch, Barrier},
    {"greedy", 0, 1024, 40000, 0, nullptr, 0, nullptr, NoScratch, Noop},
    {"hungry", 0, 1024, 0, 0, nullptr, 0, nullptr, HungryScratch, Noop},
    {"version", 0, 1024, 0, 1, kOut, 0, nullptr, NoScratch, Version<1>},
};
constexpr size_t kCount = sizeof kKernels / sizeof *kKernels;

const metallib_kernel kOnlyChecked = {"only_checked", 0, 1024,    0,         0,
                                      nullptr,        0, nullptr, NoScratch, Noop};

// Filled in by the compiler: a library with constructors is refused.
struct Table {
  const metallib_kernel* at[kCount + 1];
  constexpr Table() : at() {
    for (size_t i = 0; i < kCount; ++i) at[i] = &kKernels[i];
    at[kCount] = &kOnlyChecked;
  }
};
constexpr metallib_kernel kWide = {"version", 0, 1024,    0,         1,
                                   kOut,      0, nullptr, NoScratch, Version<2>};
constexpr const metallib_kernel* kWidePointers[] = {&kWide};

constexpr Table kTable;
constexpr auto& pointers = kTable.at;

#ifdef FIXTURE_CONSTRUCTOR
[[gnu::constructor]] void Loud() { setenv("HOSTMETAL_FIXTURE_RAN", "1", 1); }
#endif

}  // namespace

#ifndef FIXTURE_ABI_VERSION
#define FIXTURE_ABI_VERSION METALLIB_ABI_VERSION
#endif
#ifndef FIXTURE_SUPPORTED
#define FIXTURE_SUPPORTED nullptr
#endif
#ifdef FIXTURE_UNSUPPORTED
static int Unsupported() { return 0; }
#undef FIXTURE_SUPPORTED
#define FIXTURE_SUPPORTED Unsupported
#endif

extern "C" __attribute__((visibility("default"))) const metallib_library metallib_v1 = {
    METALLIB_MAGIC, FIXTURE_ABI_VERSION, sizeof(metallib_library), 0, pointers, pointers + kCount,
    "fixture",      "this processor",    FIXTURE_SUPPORTED,
};

// One kernel more, so that a test can tell the two tables apart.
extern "C" __attribute__((visibility("default"))) const metallib_library metallib_v1_checked = {
    METALLIB_MAGIC,
    FIXTURE_ABI_VERSION,
    sizeof(metallib_library),
    1,
    pointers,
    pointers + kCount + 1,
    "fixture",
    "this processor",
    FIXTURE_SUPPORTED,
};

extern "C" __attribute__((visibility("default"))) const metallib_library metallib_v1_wide = {
    METALLIB_MAGIC,
    FIXTURE_ABI_VERSION,
    sizeof(metallib_library),
    0,
    kWidePointers,
    kWidePointers + 1,
    "fixture",
    "wider vectors",
    FIXTURE_SUPPORTED,
};
