// Stands for libcuda.so.1 where no GPU is: memory is the host's, a stream runs at once, and the
// modules and launches are written down for the test to read. Built as a shared object;
// HOSTMETAL_LIBCUDA names it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "hostmetal/msl/metallib_abi.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
using Address = uint64_t;

namespace {

struct Parameter {
  size_t size;
};
struct Function {
  std::string name;
  std::vector<Parameter> parameters;
};
struct Module {
  std::string text;
  std::map<std::string, Function> functions;
};
struct Event {
  uint64_t at;
};

// Never destroyed, as a queue's thread may give back its memory while the process exits. NVIDIA's
// library answers CUDA_ERROR_DEINITIALIZED then.
std::mutex& mutex = *new std::mutex;
std::string& log_text = *new std::string;
// The answer of a function's next call.
std::map<std::string, int>& failing = *new std::map<std::string, int>;
int lost = 0;  // the answer of all calls, once a kernel has faulted
std::map<char*, size_t>& pinned = *new std::map<char*, size_t>;  // the program's own pages
uint64_t managed = 0;
uint64_t ticks = 0;
bool held = false;  // no event passes
std::condition_variable& released = *new std::condition_variable;

void Log(const std::string& line) {
  std::lock_guard<std::mutex> lock(mutex);
  log_text += line + "\n";
}
int Answer(const char* function) {
  std::lock_guard<std::mutex> lock(mutex);
  if (lost) return lost;
  auto found = failing.find(function);
  if (found == failing.end()) return 0;
  int result = found->second;
  failing.erase(found);
  if (result >= 700) lost = result;
  return result;
}
const char* Environment(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value ? value : otherwise;
}
// The total that the GPU has, and how much of it is taken.
const size_t kTotal = size_t(atoi(Environment("FAKE_CUDA_MEGABYTES", "64"))) << 20;
std::map<void*, size_t>& taken = *new std::map<void*, size_t>;
size_t Free() {
  size_t sum = 0;
  for (const auto& block : taken) sum += block.second;
  return kTotal - sum;
}
int Take(Address* out, size_t bytes) {
  if (bytes > Free()) return 2;
  void* block = aligned_alloc(256, (bytes + 255) / 256 * 256);
  memset(block, 0xa5, bytes);
  taken[block] = bytes;
  *out = reinterpret_cast<Address>(block);
  return 0;
}

}  // namespace

// ---- for the test
EXPORT const char* fake_log() {
  static std::string copy;
  std::lock_guard<std::mutex> lock(mutex);
  copy.swap(log_text);
  log_text.clear();
  return copy.c_str();
}
EXPORT void fake_fail(const char* function, int result) {
  std::lock_guard<std::mutex> lock(mutex);
  failing[function] = result;
}
EXPORT void fake_recover() { lost = 0; }
EXPORT void fake_hold(bool hold) {
  std::lock_guard<std::mutex> lock(mutex);
  held = hold;
  released.notify_all();
}
EXPORT size_t fake_taken() { return kTotal - Free(); }

// ---- the library's functions
EXPORT int cuInit(unsigned) { return getenv("FAKE_CUDA_NONE") ? 100 : 0; }
EXPORT int cuDriverGetVersion(int* v) { return *v = 12010, 0; }
EXPORT int cuDeviceGetCount(int* n) { return *n = 3, 0; }
EXPORT int cuDeviceGet(int* d, int i) { return *d = i, 0; }
EXPORT int cuDeviceGetName(char* name, int, int device) {
  strcpy(name, device == 0 ? "Fake 90" : device == 1 ? "Fake 80" : "Fake 75");
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* v, int what, int device) {
  *v = what == 75   ? (device == 0   ? atoi(Environment("FAKE_CUDA_CAPABILITY", "9"))
                       : device == 1 ? 8
                                     : 7)
       : what == 76 ? (device == 2 ? 5 : 0)
       : what == 97 ? 101376
                    : what == 89;
  return 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t* n, int) { return *n = kTotal, 0; }
EXPORT int cuDevicePrimaryCtxRetain(void** c, int) { return *c = &managed, 0; }
EXPORT int cuCtxSetCurrent(void*) { return 0; }
EXPORT int cuMemGetInfo_v2(size_t* available, size_t* total) {
  *available = Free();
  return *total = kTotal, 0;
}
EXPORT int cuMemAlloc_v2(Address* out, size_t bytes) {
  if (int r = Answer("cuMemAlloc")) return r;
  Log("private " + std::to_string(bytes));
  return Take(out, bytes);
}
EXPORT int cuMemAllocManaged(Address* out, size_t bytes, unsigned) {
  Log("managed " + std::to_string(bytes));
  return Take(out, bytes);
}
EXPORT int cuMemFree_v2(Address a) {
  taken.erase(reinterpret_cast<void*>(a));
  free(reinterpret_cast<void*>(a));
  return 0;
}
EXPORT int cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  if (flags > 7) return 1;
  Log("pinned " + std::to_string(bytes));
  *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return 0;
}
EXPORT int cuMemFreeHost(void* p) { return free(p), 0; }
// Pages that are pinned already are CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED.
EXPORT int cuMemHostRegister_v2(void* p, size_t bytes, unsigned) {
  char *begin = static_cast<char*>(p), *end = begin + bytes;
  for (const auto& [first, length] : pinned) {
    if (first < end && begin < first + length) return 712;
  }
  Log("pages " + std::to_string(bytes));
  pinned[begin] = bytes;
  return 0;
}
EXPORT int cuMemHostUnregister(void* p) {
  Log("pages back");
  return pinned.erase(static_cast<char*>(p)) ? 0 : 713;
}
EXPORT int cuMemHostGetDevicePointer_v2(Address* out, void* p, unsigned) {
  return *out = reinterpret_cast<Address>(p), 0;
}
// By a name that says where it lies; another name is CUDA_ERROR_INVALID_HANDLE.
struct IpcName {
  unsigned char bytes[64];
};
EXPORT int cuIpcGetMemHandle(IpcName* name, Address a) {
  if (int r = Answer("cuIpcGetMemHandle")) return r;
  memset(name, 0x5a, sizeof *name);
  memcpy(name, &a, sizeof a);
  return 0;
}
EXPORT int cuIpcOpenMemHandle_v2(Address* out, IpcName name, unsigned flags) {
  if (flags != 1 || name.bytes[63] != 0x5a) return 400;
  memcpy(out, &name, sizeof *out);
  return taken.count(reinterpret_cast<void*>(*out)) ? 0 : 400;
}
// Overlapping ranges, of which the real library copies anything, are refused here.
EXPORT int cuMemcpyAsync(Address to, Address from, size_t bytes, void*) {
  if (int r = Answer("cuMemcpyAsync")) return r;
  if (to < from + bytes && from < to + bytes) return 1;
  memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return 0;
}
EXPORT int cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void*) {
  if (int r = Answer("cuMemsetD8Async")) return r;
  memset(reinterpret_cast<void*>(to), value, bytes);
  return 0;
}
// Flags that the real library does not know are CUDA_ERROR_INVALID_VALUE there.
EXPORT int cuStreamCreate(void** s, unsigned flags) {
  if (flags > 1) return 1;
  return *s = malloc(1), Answer("cuStreamCreate");
}
EXPORT int cuStreamDestroy_v2(void* s) { return free(s), 0; }
EXPORT int cuStreamSynchronize(void*) { return Answer("cuStreamSynchronize"); }
EXPORT int cuEventCreate(void** e, unsigned) { return *e = new Event{0}, 0; }
EXPORT int cuEventDestroy_v2(void* e) { return delete static_cast<Event*>(e), 0; }
EXPORT int cuEventRecord(void* e, void*) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    static_cast<Event*>(e)->at = ++ticks;
  }
  return Answer("cuEventRecord");
}
EXPORT int cuEventSynchronize(void*) {
  {
    std::unique_lock<std::mutex> lock(mutex);
    released.wait(lock, [] { return !held; });
  }
  return Answer("cuEventSynchronize");
}
EXPORT int cuStreamWaitEvent(void*, void* e, unsigned) {
  Log("stream waits for event " + std::to_string(static_cast<Event*>(e)->at));
  return 0;
}
EXPORT int cuEventElapsedTime(float* ms, void* a, void* b) {
  *ms = 0.25f * float(static_cast<Event*>(b)->at - static_cast<Event*>(a)->at);
  return 0;
}
EXPORT int cuModuleLoadDataEx(void** out, const void* image, unsigned n, int* options,
                              void** values) {
  std::string text = static_cast<const char*>(image);
  Log("module " + text + "end of module");
  if (int r = Answer("cuModuleLoadDataEx")) {
    for (unsigned i = 0; i < n; ++i) {
      if (options[i] == 5)
        strcpy(static_cast<char*>(values[i]), "ptxas: line 7 is not to its taste");
    }
    return r;
  }
  auto* module = new Module{text, {}};
  static const std::regex kEntry(R"(\.entry (\w[\w$]*)\(([^)]*)\))");
  for (std::sregex_iterator e(text.begin(), text.end(), kEntry), none; e != none; ++e) {
    Function f{(*e)[1], {}};
    const std::string list = (*e)[2];
    static const std::regex kParameter(
        R"(\.param (?:\.align \d+ )?\.([a-z])(\d+) [\w$]+(?:\[(\d+)\])?)");
    for (std::sregex_iterator p(list.begin(), list.end(), kParameter); p != none; ++p) {
      f.parameters.push_back({(*p)[3].matched ? std::stoul((*p)[3]) : std::stoul((*p)[2]) / 8});
    }
    module->functions[f.name] = f;
  }
  *out = module;
  return 0;
}
EXPORT int cuModuleUnload(void* m) {
  Log("unload");
  delete static_cast<Module*>(m);
  return 0;
}
EXPORT int cuModuleGetFunction(void** out, void* m, const char* name) {
  auto& functions = static_cast<Module*>(m)->functions;
  auto found = functions.find(name);
  if (found == functions.end()) return 500;
  *out = &found->second;
  return 0;
}
EXPORT int cuFuncGetAttribute(int* v, int, void*) { return *v = 640, 0; }
EXPORT int cuFuncSetAttribute(void* function, int what, int value) {
  if (int r = Answer("cuFuncSetAttribute")) return r;
  Log("attribute " + std::to_string(what) + " of " + static_cast<Function*>(function)->name + " " +
      std::to_string(value));
  return 0;
}
namespace {
// The effect of the fixture's kernel "tell", as hostmetal/msl/lib/gpu_log.h has it.
void Tell(Address address) {
  auto* log = reinterpret_cast<metallib_log*>(address);
  struct {
    metallib_log_record head;
    metallib_log_argument argument;
    uint64_t number;
    char texts[24];
  } record = {{sizeof record, 4, METALLIB_LOG_INLINE, "", "", "", "", {5, 0, 0}, 1},
              {METALLIB_LOG_UNSIGNED, 4, 1, {}},
              5,
              "gpu\0log\0told %u\0tell"};
  if (log->level > 4 || log->used + sizeof record > log->capacity) return;
  memcpy(reinterpret_cast<char*>(log + 1) + log->used, &record, sizeof record);
  log->used += sizeof record;
}
}  // namespace

EXPORT int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void*, void** parameters,
                          void**) {
  if (int r = Answer("cuLaunchKernel")) return r;
  const auto& f = *static_cast<Function*>(function);
  std::ostringstream line;
  line << "launch " << f.name << " " << gx << " " << gy << " " << gz << " of " << bx << " " << by
       << " " << bz << " shared " << shared;
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    line << " |";
    for (size_t b = 0; b + 4 <= f.parameters[i].size; b += 4) {
      uint32_t word;
      memcpy(&word, static_cast<char*>(parameters[i]) + b, 4);
      line << " " << word;
    }
  }
  Log(line.str());
  if (f.name == "msl_tell") Tell(*static_cast<Address*>(parameters[f.parameters.size() - 1]));
  return 0;
}
EXPORT int cuGetErrorName(int r, const char** name) {
  *name = r == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : r == 100 ? "CUDA_ERROR_NO_DEVICE"
          : r == 218 ? "CUDA_ERROR_INVALID_PTX"
          : r == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                     : nullptr;
  return *name ? 0 : 1;
}
EXPORT int cuGetErrorString(int, const char** text) { return *text = "as the fake says it", 0; }
