// Loading of .metallib files.
#include "hostmetal/src/cpu/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "hostmetal/src/cpu/elf.h"
#include "hostmetal/src/digest.h"

namespace hostmetal {
namespace {

// The path of an open file, for dlopen(). A debugger opens it, too, in a process of its own: /proc/self
// would be its own there, and gdb would wait for a pipe.
std::string PathOf(int fd) {
  const std::string file = "/fd/" + std::to_string(fd);
  const std::string path = "/proc/" + std::to_string(getpid()) + file;
  struct stat here, there;
  const bool same = fstat(fd, &here) == 0 && stat(path.c_str(), &there) == 0 &&
                    here.st_dev == there.st_dev && here.st_ino == there.st_ino;
  return same ? path : "/proc/self" + file;  // where /proc counts processes in another way
}

class CpuModule : public Module {
 public:
  ~CpuModule() override {
    if (handle_) dlclose(handle_);
    if (fd_ >= 0) close(fd_);
  }
  const std::vector<const metallib_kernel*>& kernels() const override { return kernels_; }
  const metallib_gpu_library* gpu() const override {
    return static_cast<const metallib_gpu_library*>(dlsym(handle_, METALLIB_GPU_SYMBOL));
  }
  std::string Deferred() const override {
    auto* text = static_cast<const char*>(dlsym(handle_, METALLIB_DEFERRED_SYMBOL));
    return text ? text : "";
  }
  std::string Bytes() const override {
    struct stat info;
    if (fstat(fd_, &info) != 0) return "";
    std::string bytes(size_t(info.st_size), '\0');
    const ssize_t n = pread(fd_, bytes.data(), bytes.size(), 0);
    return n == info.st_size ? bytes : "";
  }
  std::string Identity() const override {
    Digest digest;
    digest.Bytes(Bytes());
    digest.Part(checked_ ? CheckedForm() : "");
    return digest.Value();
  }

  // The bytes go to an anonymous file first. dlopen() knows libraries by inode, and a file
  // rewritten in place would change under running code: a private copy is neither confused with an
  // old version nor changed.
  Failure Load(std::string_view bytes, const std::string& name, bool checked) {
    std::string why = WhyNoMetallib(bytes);
    if (!why.empty()) return Bad(name, why);
    size_t slash = name.rfind('/');
    std::string title = slash == std::string::npos ? name : name.substr(slash + 1);
    // Open until dlclose(): its number is part of the path that dlopen() compares first.
    fd_ = memfd_create(title.substr(0, 200).c_str(), MFD_CLOEXEC);
    if (fd_ < 0) return System(name, "memfd_create");
    for (size_t at = 0; at < bytes.size();) {
      ssize_t n = write(fd_, bytes.data() + at, bytes.size() - at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return System(name, "write");
      at += size_t(n);
    }
    std::string path = PathOf(fd_);
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) return Bad(name, std::string("cannot be loaded: ") + dlerror());
    auto* library = static_cast<const metallib_library*>(dlsym(handle_, METALLIB_SYMBOL));
    if (!library || library->magic != METALLIB_MAGIC) {
      return Bad(name, "is a shared object but not a Metal library");
    }
    if (library->abi_version != METALLIB_ABI_VERSION) {
      return Bad(name, "was compiled for ABI " + std::to_string(library->abi_version) +
                           ", this runtime has " + std::to_string(METALLIB_ABI_VERSION) +
                           "; compile it again");
    }
    if (library->supported && !library->supported()) {
      return {kLibraryUnsupported, "[newLibrary] '" + name + "' was compiled for '" +
                                       library->target +
                                       "', which this processor does not support; compile it here"};
    }
    checked_ = checked;
    if (checked) {
      auto* safe = static_cast<const metallib_library*>(dlsym(handle_, METALLIB_CHECKED_SYMBOL));
      // A library without checked kernels still runs; there is nothing to check with.
      if (safe) library = safe;
      if (ChecksKernels() && library->checked != kWithChecks && !IsLeftOut(library))
        SayUnchecked(name);
      if (!ChecksKernels() && library->checked == kWithChecks && library->begin != library->end)
        return Bad(name, kOnlyWithChecks);
    } else if (library->begin == library->end && dlsym(handle_, METALLIB_CHECKED_SYMBOL)) {
      auto* safe = static_cast<const metallib_library*>(dlsym(handle_, METALLIB_CHECKED_SYMBOL));
      if (safe->begin != safe->end) {
        return Bad(name,
                   safe->checked == kWithChecks
                       ? kOnlyWithChecks
                       : "holds bounds-checked kernels alone; set METAL_DEVICE_WRAPPER_TYPE=1, or "
                         "compile it without -fshader-validation-only");
      }
    }
    kernels_.assign(library->begin, library->end);
    auto* wide = static_cast<const metallib_library*>(dlsym(handle_, METALLIB_WIDE_SYMBOL));
    if (wide && !library->checked && WideVectors() && (!wide->supported || wide->supported())) {
      TakeInPlace(wide);
    }
    return {};
  }

 private:
  // The kernels of `others` instead of those of the same name.
  void TakeInPlace(const metallib_library* others) {
    std::unordered_map<std::string_view, const metallib_kernel*> named;
    for (auto* kernel = others->begin; kernel != others->end; ++kernel) {
      named[(*kernel)->name] = *kernel;
    }
    for (const metallib_kernel*& kernel : kernels_) {
      auto found = named.find(kernel->name);
      if (found != named.end()) kernel = found->second;
    }
  }

  static constexpr uint32_t kWithChecks = 2;  // of metallib_library.checked
  static constexpr const char* kOnlyWithChecks =
      "holds the kernels of HOSTMETAL_CHECK alone; set HOSTMETAL_CHECK=bounds (or race, init, "
      "barrier, alias), or compile it without -fshader-checks";
  // Whether its kernels' code is for later.
  static bool IsLeftOut(const metallib_library* library) {
    return std::all_of(library->begin, library->end, [](const metallib_kernel* kernel) {
      return kernel->flags & METALLIB_KERNEL_ABSENT;
    });
  }
  static void SayUnchecked(const std::string& name) {
    fprintf(stderr,
            "[newLibrary] '%s' was compiled without checks: HOSTMETAL_CHECK and HOSTMETAL_SCHEDULE "
            "change nothing for its "
            "kernels; compile it with 'metal -fshader-checks', or from its source in the program\n",
            name.c_str());
  }

  static Failure Bad(const std::string& name, const std::string& what) {
    return {kLibraryInternal, "[newLibrary] '" + name + "' " + what};
  }
  static Failure System(const std::string& name, const char* call) {
    return Bad(name, std::string("cannot be loaded: ") + call + ": " + strerror(errno));
  }

  int fd_ = -1;
  bool checked_ = false;
  void* handle_ = nullptr;
  std::vector<const metallib_kernel*> kernels_;
};

// A program that asks for the same unchanged file again gets the same module.
using FileKey = std::tuple<dev_t, ino_t, int64_t, int64_t, off_t, bool>;
struct FileCache {
  std::mutex mutex;
  std::map<FileKey, std::weak_ptr<Module>> modules;
};
FileCache& TheFileCache() {
  static FileCache* cache = new FileCache;
  return *cache;
}

}  // namespace

bool WideVectors() {
  const char* asked = getenv("HOSTMETAL_WIDE");
  if (asked && !strcmp(asked, "0")) return false;
#if defined(__x86_64__)
  return __builtin_cpu_supports("x86-64-v4");
#else
  return false;
#endif
}

std::shared_ptr<Module> LoadModuleData(std::string_view bytes, const std::string& name,
                                       bool checked, Failure* failure) {
  auto module = std::make_shared<CpuModule>();
  *failure = module->Load(bytes, name, checked);
  if (*failure) return nullptr;
  return module;
}

std::shared_ptr<Module> LoadModuleFile(const std::string& path, bool checked, Failure* failure) {
  auto fail = [&](int code, const std::string& what) {
    *failure = {code, "[newLibrary] '" + path + "' " + what};
    return nullptr;
  };
  // A pipe would wait for a writer.
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) {
    int error = errno;
    if (fd >= 0) close(fd);
    bool missing = error == ENOENT || error == ENOTDIR;
    return fail(kLibraryFileNotFound,
                missing ? "does not exist" : std::string("cannot be opened: ") + strerror(error));
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return fail(kLibraryFileNotFound, "is not a file");
  }
  FileKey key{info.st_dev,          info.st_ino,  info.st_mtim.tv_sec,
              info.st_mtim.tv_nsec, info.st_size, checked};
  FileCache& cache = TheFileCache();
  std::lock_guard<std::mutex> lock(cache.mutex);
  auto found = cache.modules.find(key);
  if (found != cache.modules.end()) {
    if (auto module = found->second.lock()) {
      close(fd);
      return module;
    }
  }
  std::string bytes(size_t(info.st_size), '\0');
  size_t at = 0;
  while (at < bytes.size()) {
    ssize_t n = read(fd, &bytes[at], bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += size_t(n);
  }
  close(fd);
  if (at != bytes.size())
    return fail(kLibraryInternal, "changed or could not be read while loading");
  auto module = LoadModuleData(bytes, path, checked, failure);
  if (module) {
    for (auto it = cache.modules.begin(); it != cache.modules.end();) {
      it = it->second.expired() ? cache.modules.erase(it) : std::next(it);
    }
    cache.modules[key] = module;
  }
  return module;
}

}  // namespace hostmetal
