// Loading of NVIDIA's driver library.
#include "hostmetal/src/cuda/libcuda.h"

#include <dlfcn.h>
#include <stdlib.h>

namespace hostmetal {
namespace cuda {
namespace {

struct Loaded {
  Library library;
  std::string why;  // empty: it is there

  Loaded() {
    const char* wanted = getenv("HOSTMETAL_LIBCUDA");
    const char* name = wanted ? wanted : "libcuda.so.1";
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      why = std::string("NVIDIA's driver library cannot be loaded: ") + dlerror();
      return;
    }
#define HOSTMETAL_FIND(member, symbol, ...)                                                     \
  library.member = reinterpret_cast<Result (*)(__VA_ARGS__)>(dlsym(handle, symbol));            \
  if (!library.member) {                                                                        \
    why = std::string(name) + " has no " + symbol + "; NVIDIA's driver 530 or later is needed"; \
    return;                                                                                     \
  }
    HOSTMETAL_LIBCUDA(HOSTMETAL_FIND)
#undef HOSTMETAL_FIND
    Result result = library.Init(0);
    if (result != kSuccess) why = "cuInit: " + library.Explain(result);
  }
};

// From these on, every later call of the process fails too.
bool Sticky(Result result) { return result >= 700 && result < 800 && result != 701; }

}  // namespace

std::string Library::Explain(Result result) const {
  const char *name = nullptr, *text = nullptr;
  if (GetErrorName(result, &name) != kSuccess || !name) {
    return "CUDA error " + std::to_string(result);
  }
  GetErrorString(result, &text);
  return text ? std::string(name) + ": " + text : name;
}

const Library* TheLibrary(std::string* why) {
  static Loaded* loaded = new Loaded;
  if (loaded->why.empty()) return &loaded->library;
  if (why) *why = loaded->why;
  return nullptr;
}

Failure Explained(const Library& library, const std::string& what, Result result) {
  int code = kInternal;
  if (result == kOutOfDeviceMemory) code = kOutOfMemory;
  if (result == 700 || result == 716 || result == 717 || result == 718) code = kPageFault;
  std::string message = what + ": " + library.Explain(result);
  if (Sticky(result)) {
    message += "; this process cannot use the GPU any more, start it again";
    if (code == kPageFault) {
      message += " (HOSTMETAL_DEVICE=cpu METAL_DEVICE_WRAPPER_TYPE=1 names the access)";
    }
  }
  return {code, message};
}

}  // namespace cuda
}  // namespace hostmetal
