// Memory for buffers: small sizes come from recycled slabs, large ones from cached mappings.
#ifndef HOSTMETAL_SRC_CPU_MEMORY_H_
#define HOSTMETAL_SRC_CPU_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace hostmetal {

class MemoryPool {
 public:
  // `cache_limit`: bytes of freed large blocks to keep.
  explicit MemoryPool(size_t cache_limit) : cache_limit_(cache_limit) {}

  // nullptr when the system has no memory. *size is the block's size. Blocks of a page and more are
  // page-aligned, smaller ones 256-byte aligned.
  void* Allocate(size_t bytes, bool zeroed, size_t* size);
  void Free(void* block, size_t size);

 private:
  static constexpr std::array<uint32_t, 12> kClasses = {256,   512,   1024,  2048,  4096,  8192,
                                                        12288, 16384, 24576, 32768, 49152, 65536};
  static constexpr size_t kSlab = size_t{1} << 20;

  void* AllocateSmall(size_t index, bool* fresh);
  void* AllocateLarge(size_t size, size_t* taken, bool* fresh);
  void Trim(size_t limit);

  const size_t cache_limit_;
  std::mutex small_mutex_;
  std::array<std::vector<void*>, kClasses.size()> free_;
  std::mutex large_mutex_;
  std::multimap<size_t, void*> cached_;
  size_t cached_bytes_ = 0;
};

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CPU_MEMORY_H_
