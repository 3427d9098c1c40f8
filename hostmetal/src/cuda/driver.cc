// The CUDA backend's devices.
#include "hostmetal/src/cuda/driver.h"

#include <string.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "hostmetal/src/cpu/module.h"

namespace hostmetal {
namespace {

using cuda::Gpu;
using cuda::kSuccess;

// The program's own pages that buffers lie in. The library pins pages once, for all GPUs, and refuses to do it again,
// while several buffers, of one GPU or of several, may lie in the same.
class Pages {
 public:
  bool Pin(const cuda::Library& cu, void* memory, size_t bytes) {
    constexpr unsigned kPortable = 1, kMapped = 2;  // CU_MEMHOSTREGISTER_*
    char* const begin = static_cast<char*>(memory);
    std::lock_guard<std::mutex> lock(mutex_);
    auto around = pinned_.upper_bound(begin);
    if (around != pinned_.begin() && begin + bytes <= std::prev(around)->second.end) {
      ++std::prev(around)->second.buffers;
      return true;
    }
    if (cu.MemHostRegister(memory, bytes, kPortable | kMapped) != kSuccess) return false;
    pinned_[begin] = {begin + bytes, 1};
    return true;
  }
  void Unpin(const cuda::Library& cu, void* memory) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto around = std::prev(pinned_.upper_bound(static_cast<char*>(memory)));
    if (--around->second.buffers) return;
    cu.MemHostUnregister(around->first);
    pinned_.erase(around);
  }

 private:
  struct Range {
    char* end;
    int buffers;
  };
  std::mutex mutex_;
  std::map<char*, Range> pinned_;  // by where they begin; they do not overlap
};

class CudaDevice : public Driver {
 public:
  CudaDevice(const Gpu& gpu, Pages& pages, DeviceInfo info)
      : gpu_(gpu), pages_(pages), info_(std::move(info)), memory_(gpu_) {
    gpu_.Enter();
    gpu_.library->StreamCreate(&service_, 1);
  }

  const DeviceInfo& info() const override { return info_; }

  bool Allocate(size_t bytes, bool zeroed, Storage storage, Allocation* allocation) override {
    if (!memory_.Allocate(bytes, storage, allocation)) return false;
    if (!zeroed) return true;
    if (allocation->host && memory_.IsPinned(*allocation)) {
      memset(allocation->host, 0, bytes);
      return true;
    }
    if (Fill(allocation->device, 0, bytes)) return true;
    memory_.Free(*allocation);
    return false;
  }
  void Free(const Allocation& allocation) override { memory_.Free(allocation); }

  bool Transfer(void* destination, const void* source, size_t length) override {
    gpu_.Enter();
    return gpu_.library->MemcpyAsync(reinterpret_cast<cuda::Address>(destination),
                                     reinterpret_cast<cuda::Address>(source), length,
                                     service_) == kSuccess &&
           gpu_.library->StreamSynchronize(service_) == kSuccess;
  }
  bool Fill(void* destination, uint8_t value, size_t length) override {
    gpu_.Enter();
    return gpu_.library->MemsetD8Async(reinterpret_cast<cuda::Address>(destination), value, length,
                                       service_) == kSuccess &&
           gpu_.library->StreamSynchronize(service_) == kSuccess;
  }

  bool Borrow(void* memory, size_t bytes, Allocation* allocation) override {
    gpu_.Enter();
    if (!pages_.Pin(*gpu_.library, memory, bytes)) return false;
    cuda::Address address = 0;
    if (gpu_.library->MemHostGetDevicePointer(&address, memory, 0) != kSuccess) {
      pages_.Unpin(*gpu_.library, memory);
      return false;
    }
    *allocation = {reinterpret_cast<void*>(address), memory, bytes};
    return true;
  }
  void Return(const Allocation& allocation) override {
    gpu_.Enter();
    pages_.Unpin(*gpu_.library, allocation.host);
  }

  bool Share(size_t bytes, SharedName* name, void** address) override {
    gpu_.Enter();
    // Not from the blocks that are kept: the library gives away its whole allocation at once.
    cuda::Address shared = 0;
    if (gpu_.library->MemAlloc(&shared, bytes) != kSuccess) return false;
    cuda::IpcName found;
    // Others may look at once for a value that is not there yet.
    if (gpu_.library->MemsetD8Async(shared, 0, bytes, nullptr) != kSuccess ||
        gpu_.library->StreamSynchronize(nullptr) != kSuccess ||
        gpu_.library->IpcGetMemHandle(&found, shared) != kSuccess) {
      gpu_.library->MemFree(shared);
      return false;
    }
    static_assert(sizeof found == sizeof *name, "one name for both");
    memcpy(name, &found, sizeof found);
    *address = reinterpret_cast<void*>(shared);
    return true;
  }
  bool OpenShared(const SharedName& name, void** address) override {
    constexpr unsigned kPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: another GPU's, too
    gpu_.Enter();
    cuda::IpcName wanted;
    memcpy(&wanted, &name, sizeof wanted);
    cuda::Address shared = 0;
    if (gpu_.library->IpcOpenMemHandle(&shared, wanted, kPeerAccess) != kSuccess) return false;
    *address = reinterpret_cast<void*>(shared);
    return true;
  }

  std::shared_ptr<Module> LoadFile(const std::string& path, bool checked,
                                   Failure* failure) override {
    return WithCode(LoadModuleFile(path, checked, failure), path, failure);
  }
  std::shared_ptr<Module> LoadData(std::string_view bytes, const std::string& name, bool checked,
                                   Failure* failure) override {
    return WithCode(LoadModuleData(bytes, name, checked, failure), name, failure);
  }
  std::string CompilerTarget() const override { return gpu_.capability >= 90 ? "sm_90" : "sm_80"; }

  Failure Prepare(Kernel* kernel) override { return cuda::Compile(gpu_, kernel); }
  std::unique_ptr<Stream> NewStream() override { return cuda::NewStream(gpu_); }

 private:
  std::shared_ptr<Module> WithCode(std::shared_ptr<Module> tables, const std::string& name,
                                   Failure* failure) {
    if (!tables) return nullptr;
    // The same file again is the same module, with its compiled code.
    std::lock_guard<std::mutex> lock(modules_mutex_);
    const Module* key = tables.get();
    if (auto module = modules_[key].lock()) return module;
    auto module = cuda::NewModule(gpu_, std::move(tables), name, failure);
    for (auto it = modules_.begin(); it != modules_.end();) {
      it = it->second.expired() ? modules_.erase(it) : std::next(it);
    }
    if (module) modules_[key] = module;
    return module;
  }

  const Gpu gpu_;
  Pages& pages_;
  const DeviceInfo info_;
  cuda::Memory memory_;
  cuda::Stream service_ = nullptr;  // of calls that wait
  std::mutex modules_mutex_;
  std::map<const Module*, std::weak_ptr<Module>> modules_;  // by the reflection's module
};

struct Devices {
  Pages pages;
  std::vector<Driver*> drivers;
  std::string why;  // there are none

  Devices() {
    const cuda::Library* cu = cuda::TheLibrary(&why);
    if (!cu) return;
    int count = 0;
    cuda::Result result = cu->DeviceGetCount(&count);
    if (result != kSuccess || count == 0) {
      why = result == kSuccess ? "there is no NVIDIA GPU" : cu->Explain(result);
      return;
    }
    for (int i = 0; i < count; ++i) {
      Gpu gpu{cu, i, 0, nullptr, 0};
      char name[256] = "";
      size_t bytes = 0;
      int major = 0, minor = 0, bus = 0, slot = 0, domain = 0;
      if (cu->DeviceGet(&gpu.device, i) != kSuccess ||
          cu->DeviceGetName(name, sizeof name, gpu.device) != kSuccess ||
          cu->DeviceTotalMem(&bytes, gpu.device) != kSuccess ||
          cu->DeviceGetAttribute(&major, cuda::kComputeCapabilityMajor, gpu.device) != kSuccess ||
          cu->DeviceGetAttribute(&minor, cuda::kComputeCapabilityMinor, gpu.device) != kSuccess) {
        why = "GPU " + std::to_string(i) + " does not answer";
        continue;
      }
      cu->DeviceGetAttribute(&bus, cuda::kPciBusId, gpu.device);
      cu->DeviceGetAttribute(&slot, cuda::kPciDeviceId, gpu.device);
      cu->DeviceGetAttribute(&domain, cuda::kPciDomainId, gpu.device);
      gpu.capability = 10 * major + minor;
      if (gpu.capability < 80) {
        why = std::string(name) + " is an sm_" + std::to_string(gpu.capability) +
              "; sm_80 (Ampere) or later is needed";
        continue;
      }
      result = cu->PrimaryCtxRetain(&gpu.context, gpu.device);
      if (result != kSuccess) {
        why = std::string(name) + ": " + cu->Explain(result);
        continue;
      }
      DeviceInfo info;
      info.name = name;
      info.registry_id =
          0x6e76696400000000 | uint64_t(domain) << 16 | uint64_t(bus) << 8 | uint64_t(slot);
      info.memory_bytes = bytes;
      info.unified_memory = false;
      int cores = 0;
      cu->DeviceGetAttribute(&cores, cuda::kMultiprocessors, gpu.device);
      info.cores = uint32_t(cores);
      int shared = 0;
      cu->DeviceGetAttribute(&shared, cuda::kMostSharedMemoryPerBlock, gpu.device);
      info.threadgroup_bytes = std::max(info.threadgroup_bytes, uint32_t(shared));
      drivers.push_back(new CudaDevice(gpu, pages, std::move(info)));
    }
  }
};

}  // namespace

const std::vector<Driver*>& CudaDrivers(std::string* why) {
  static Devices* devices = new Devices;
  if (why) *why = devices->why;
  return devices->drivers;
}

}  // namespace hostmetal
