// Memory of a GPU: freed blocks are kept, as the library's own calls wait for the whole device.
#ifndef HOSTMETAL_SRC_CUDA_MEMORY_H_
#define HOSTMETAL_SRC_CUDA_MEMORY_H_

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "hostmetal/src/driver.h"

namespace hostmetal {
namespace cuda {

struct Gpu;

class Memory {
 public:
  explicit Memory(const Gpu& gpu);

  // Private blocks lie on the GPU. Shared ones are managed memory, which moves to where it is used,
  // as long as the GPU has room for it; beyond that, and for uploads, pinned memory of the host. So
  // are small ones: to move a page takes longer than to read it over the bus.
  bool Allocate(size_t bytes, Storage storage, Allocation* allocation);
  void Free(const Allocation& allocation);
  bool IsPinned(const Allocation& allocation);

 private:
  enum Kind { kPrivate, kManaged, kPinned, kKinds };
  // Blocks up to this are cut from slabs of kSlab bytes, larger ones are multiples of it.
  static constexpr size_t kStays = size_t{64} << 10;  // up to this, shared memory is pinned
  static constexpr size_t kSmall = size_t{1} << 20, kSlab = size_t{8} << 20;

  void* Take(Kind kind, size_t bytes, size_t* size);
  void* Map(Kind kind, size_t bytes);
  void Unmap(Kind kind, void* block);
  void Trim();

  const Gpu& gpu_;
  bool managed_;
  std::mutex mutex_;
  std::multimap<size_t, void*> free_[kKinds];
  size_t mapped_managed_ = 0;
  std::map<void*, Kind> kinds_;  // of the memory in use
};

}  // namespace cuda
}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CUDA_MEMORY_H_
