// Memory for buffers.
#include "hostmetal/src/cpu/memory.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>

// Freed blocks are poisoned, so that AddressSanitizer sees a use after release although the block
// is recycled.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define HM_POISON(block, size) ASAN_POISON_MEMORY_REGION(block, size)
#define HM_UNPOISON(block, size) ASAN_UNPOISON_MEMORY_REGION(block, size)
#endif
#endif
#ifndef HM_POISON
#define HM_POISON(block, size) ((void)0)
#define HM_UNPOISON(block, size) ((void)0)
#endif

namespace hostmetal {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
// From here on a block starts on a huge page: gathers from a big table are bound by the TLB
// otherwise.
constexpr size_t kHugeFrom = size_t{4} << 20;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void* Map(size_t size) {
  size_t slack = size >= kHugeFrom ? kHugePage : 0;
  void* raw =
      mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  if (!slack) return raw;
  auto begin = reinterpret_cast<uintptr_t>(raw);
  uintptr_t start = RoundUp(begin, kHugePage);
  if (start > begin) munmap(raw, start - begin);
  if (size_t tail = begin + slack - start) munmap(reinterpret_cast<void*>(start + size), tail);
  madvise(reinterpret_cast<void*>(start), size, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(start);
}

}  // namespace

void* MemoryPool::Allocate(size_t bytes, bool zeroed, size_t* size) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  bool fresh = false;
  void* block;
  if (bytes <= kClasses.back()) {
    size_t index =
        size_t(std::lower_bound(kClasses.begin(), kClasses.end(), bytes) - kClasses.begin());
    *size = kClasses[index];
    block = AllocateSmall(index, &fresh);
  } else {
    block = AllocateLarge(RoundUp(bytes, kPage), size, &fresh);
  }
  if (!block) return nullptr;
  HM_UNPOISON(block, bytes);
  if (zeroed && !fresh) memset(block, 0, bytes);
  return block;
}

void MemoryPool::Free(void* block, size_t size) {
  if (size <= kClasses.back()) {
    size_t index =
        size_t(std::lower_bound(kClasses.begin(), kClasses.end(), size) - kClasses.begin());
    HM_POISON(block, size);
    std::lock_guard<std::mutex> lock(small_mutex_);
    free_[index].push_back(block);
    return;
  }
  HM_POISON(block, size);
  std::lock_guard<std::mutex> lock(large_mutex_);
  cached_.emplace(size, block);
  cached_bytes_ += size;
  Trim(cache_limit_);
}

void* MemoryPool::AllocateSmall(size_t index, bool* fresh) {
  std::lock_guard<std::mutex> lock(small_mutex_);
  std::vector<void*>& list = free_[index];
  if (list.empty()) {
    auto* slab = static_cast<char*>(Map(kSlab));
    if (!slab) return nullptr;
    HM_POISON(slab, kSlab);
    size_t step = kClasses[index];
    size_t count = std::min<size_t>(kSlab / step, 256);
    // The rest of a slab of small blocks becomes blocks of a page: slabs stay few and none is
    // wasted.
    for (size_t i = count; i-- > 0;) list.push_back(slab + i * step);
    size_t page_class =
        size_t(std::find(kClasses.begin(), kClasses.end(), kPage) - kClasses.begin());
    for (size_t at = RoundUp(count * step, kPage); at + kPage <= kSlab && index != page_class;
         at += kPage) {
      free_[page_class].push_back(slab + at);
    }
  }
  void* block = list.back();
  list.pop_back();
  *fresh = false;
  return block;
}

void* MemoryPool::AllocateLarge(size_t size, size_t* taken, bool* fresh) {
  {
    std::lock_guard<std::mutex> lock(large_mutex_);
    // The best fit, if it wastes at most an eighth.
    auto found = cached_.lower_bound(size);
    if (found != cached_.end() && found->first - size <= size / 8) {
      // Among several the one freed last, which caches still have.
      found = std::prev(cached_.upper_bound(found->first));
      void* block = found->second;
      *taken = found->first;
      cached_bytes_ -= found->first;
      cached_.erase(found);
      return block;
    }
  }
  *taken = size;
  *fresh = true;
  void* block = Map(size);
  if (!block) {
    std::lock_guard<std::mutex> lock(large_mutex_);
    Trim(0);
    block = Map(size);
  }
  return block;
}

void MemoryPool::Trim(size_t limit) {
  while (cached_bytes_ > limit) {
    auto largest = std::prev(cached_.end());
    HM_UNPOISON(largest->second, largest->first);
    munmap(largest->second, largest->first);
    cached_bytes_ -= largest->first;
    cached_.erase(largest);
  }
}

}  // namespace hostmetal
