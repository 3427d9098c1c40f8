// Memory of a GPU.
#include "hostmetal/src/cuda/memory.h"

#include "hostmetal/src/cuda/driver.h"

namespace hostmetal {
namespace cuda {
namespace {

constexpr unsigned kAttachGlobal = 1;           // CU_MEM_ATTACH_GLOBAL
constexpr unsigned kPortable = 1, kMapped = 2;  // CU_MEMHOSTALLOC_*

size_t SizeClass(size_t bytes, size_t small) {
  if (bytes > small) return (bytes + (small - 1)) / small * small;
  size_t size = 256;
  while (size < bytes) size *= 2;
  return size;
}

}  // namespace

Memory::Memory(const Gpu& gpu) : gpu_(gpu) {
  int concurrent = 0;
  gpu.library->DeviceGetAttribute(&concurrent, kConcurrentManagedAccess, gpu.device);
  managed_ = concurrent != 0;  // else the host must not touch managed memory while a kernel runs
}

void* Memory::Map(Kind kind, size_t bytes) {
  const Library& cu = *gpu_.library;
  if (kind == kPinned) {
    void* block = nullptr;
    return cu.MemHostAlloc(&block, bytes, kPortable | kMapped) == kSuccess ? block : nullptr;
  }
  Address address = 0;
  if (kind == kPrivate) {
    if (cu.MemAlloc(&address, bytes) != kSuccess) return nullptr;
  } else {
    // More managed memory than the GPU has free would be moved to and fro without end.
    size_t available = 0, total = 0;
    if (cu.MemGetInfo(&available, &total) != kSuccess || bytes > available / 2 ||
        mapped_managed_ + bytes > total / 2 ||
        cu.MemAllocManaged(&address, bytes, kAttachGlobal) != kSuccess) {
      return nullptr;
    }
    mapped_managed_ += bytes;
  }
  return reinterpret_cast<void*>(address);
}

void Memory::Unmap(Kind kind, void* block) {
  if (kind == kPinned) {
    gpu_.library->MemFreeHost(block);
  } else {
    gpu_.library->MemFree(reinterpret_cast<Address>(block));
  }
}

// Gives unused large blocks back to the system.
void Memory::Trim() {
  for (int kind = 0; kind < kKinds; ++kind) {
    auto& list = free_[kind];
    for (auto it = list.upper_bound(kSmall); it != list.end(); it = list.erase(it)) {
      if (kind == kManaged) mapped_managed_ -= it->first;
      Unmap(Kind(kind), it->second);
    }
  }
}

void* Memory::Take(Kind kind, size_t bytes, size_t* size) {
  *size = SizeClass(bytes, kSmall);
  auto& list = free_[kind];
  auto found = list.lower_bound(*size);
  // A larger block may do if it wastes at most an eighth.
  if (found != list.end() && found->first - *size <= *size / 8) {
    void* block = found->second;
    *size = found->first;
    list.erase(found);
    return block;
  }
  if (*size > kSmall) {
    void* block = Map(kind, *size);
    if (!block) {
      Trim();
      block = Map(kind, *size);
    }
    return block;
  }
  auto* slab = static_cast<char*>(Map(kind, kSlab));
  if (!slab) return nullptr;
  for (size_t at = *size; at + *size <= kSlab; at += *size) list.emplace(*size, slab + at);
  return slab;
}

bool Memory::Allocate(size_t bytes, Storage storage, Allocation* allocation) {
  if (bytes > SIZE_MAX / 2) return false;
  gpu_.Enter();
  std::lock_guard<std::mutex> lock(mutex_);
  const bool moves = managed_ && storage == Storage::kShared && bytes > kStays;
  Kind kind = storage == Storage::kPrivate ? kPrivate : moves ? kManaged : kPinned;
  size_t size = 0;
  void* block = Take(kind, bytes, &size);
  if (!block && kind == kManaged) {
    kind = kPinned;
    block = Take(kind, bytes, &size);
  }
  if (!block) return false;
  kinds_[block] = kind;
  *allocation = {block, kind == kPrivate ? nullptr : block, size};
  return true;
}

bool Memory::IsPinned(const Allocation& allocation) {
  std::lock_guard<std::mutex> lock(mutex_);
  return kinds_.at(allocation.device) == kPinned;
}

void Memory::Free(const Allocation& allocation) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = kinds_.find(allocation.device);
  free_[found->second].emplace(allocation.size, allocation.device);
  kinds_.erase(found);
}

}  // namespace cuda
}  // namespace hostmetal
