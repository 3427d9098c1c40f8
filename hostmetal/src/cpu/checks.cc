// HOSTMETAL_CHECK and HOSTMETAL_SCHEDULE.
#include "hostmetal/src/cpu/checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>

namespace hostmetal {
namespace {

constexpr size_t kShadowBytes = size_t{1} << 30;  // of addresses: memory is taken where it is used

struct Asked {
  bool any = false;
  uint32_t checks = 0;
  uint32_t schedule = METALLIB_SCHEDULE_PLAIN;
  uint64_t seed = 0;
} asked;

constexpr struct {
  const char* word;
  uint32_t bit;
} kChecks[] = {{"race", METALLIB_CHECK_RACE},
               {"init", METALLIB_CHECK_INIT},
               {"barrier", METALLIB_CHECK_BARRIER},
               {"bounds", METALLIB_CHECK_BOUNDS},
               {"alias", METALLIB_CHECK_ALIAS}};

std::string ReadWords(const char* words) {
  const std::string all = words;
  for (size_t at = 0; at <= all.size();) {
    const size_t end = std::min(all.find(',', at), all.size());
    const std::string word = all.substr(at, end - at);
    auto* found = std::find_if(std::begin(kChecks), std::end(kChecks),
                               [&](auto& check) { return word == check.word; });
    if (found == std::end(kChecks)) {
      return "HOSTMETAL_CHECK is '" + all + "', in which '" + word +
             "' is no check; expected some of race, init, barrier, bounds, alias, with commas";
    }
    asked.checks |= found->bit;
    at = end + 1;
  }
  return "";
}

std::string ReadSchedule(const std::string& words) {
  const std::string random = "random:";
  if (words == "reverse") {
    asked.schedule = METALLIB_SCHEDULE_REVERSE;
  } else if (words == "one-simdgroup") {
    asked.schedule = METALLIB_SCHEDULE_ONE_SIMDGROUP;
  } else if (words.rfind(random, 0) == 0 && words.size() > random.size() &&
             words.size() < random.size() + 20 &&
             words.find_first_not_of("0123456789", random.size()) == std::string::npos) {
    asked.schedule = METALLIB_SCHEDULE_RANDOM;
    asked.seed = strtoull(words.c_str() + random.size(), nullptr, 10);
  } else {
    return "HOSTMETAL_SCHEDULE is '" + words +
           "'; expected reverse, one-simdgroup, or random: with a number, random:1";
  }
  return "";
}

// A thread's history of its launches.
class Shadow {
 public:
  Shadow() {
    void* memory = mmap(nullptr, kShadowBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) memory_ = memory;
  }
  ~Shadow() {
    if (memory_) munmap(memory_, kShadowBytes);
  }
  void* memory() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

// Private memory, and which of its bytes have been written.
struct FreshMemory {
  size_t bytes;
  std::unique_ptr<uint8_t[]> written;
};
struct AllFresh {
  std::mutex mutex;
  std::map<char*, FreshMemory> by_address;
};
AllFresh& TheFresh() {
  static auto* all = new AllFresh;
  return *all;
}

}  // namespace

std::string ReadChecks() {
  const char* check = getenv("HOSTMETAL_CHECK");
  const char* schedule = getenv("HOSTMETAL_SCHEDULE");
  std::string wrong;
  if (check && *check) wrong = ReadWords(check), asked.any = true;
  if (wrong.empty() && schedule && *schedule) wrong = ReadSchedule(schedule), asked.any = true;
  // Kernels with checks run in the place of validated ones.
  const char* wrapper = getenv("METAL_DEVICE_WRAPPER_TYPE");
  if (asked.any && wrapper && atoi(wrapper) != 0) asked.checks |= METALLIB_CHECK_BOUNDS;
  return wrong;
}

bool ChecksKernels() { return asked.any; }

const char* CheckedForm() {
  if (!asked.any) return "checked";
  return asked.checks & METALLIB_CHECK_INIT ? "checks with init" : "checks";
}

CheckedBatch::CheckedBatch(size_t launches) : launches_(launches) {
  if (!(asked.checks & METALLIB_CHECK_INIT)) return;
  AllFresh& all = TheFresh();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (auto& [address, memory] : all.by_address) {
    fresh_.push_back({address, memory.bytes, memory.written.get()});
  }
}

metallib_checks* CheckedBatch::Of(size_t number, const Kernel& kernel,
                                  const metallib_launch& launch) {
  if (!(kernel.entry->flags & METALLIB_KERNEL_CHECKS)) {
    // Its writes are not known.
    for (uint32_t i = 0; i < kernel.entry->n_arguments; ++i) {
      const metallib_argument& a = kernel.entry->arguments[i];
      if (a.kind != METALLIB_DEVICE) continue;
      MarkWritten(launch.buffers[a.index].address, launch.buffers[a.index].length);
    }
    return nullptr;
  }
  static thread_local Shadow shadow;
  if (!shadow.memory()) return nullptr;
  metallib_checks& checks = launches_[number];
  checks.checks = asked.checks;
  checks.schedule = asked.schedule;
  checks.seed = asked.seed;
  checks.overlaps = number > 0;
  checks.n_fresh = uint32_t(fresh_.size());
  checks.fresh = fresh_.data();
  checks.kernel = kernel.entry;
  checks.shadow = shadow.memory();
  checks.shadow_bytes = kShadowBytes;
  return &checks;
}

Failure CheckedBatch::Reports() const {
  std::string all;
  std::set<std::string> said;  // a dispatch again says the same again
  for (const metallib_checks& launch : launches_) {
    for (uint32_t i = 0; i < launch.n_reports; ++i) {
      if (!said.insert(launch.report[i]).second) continue;
      if (!all.empty()) all += "\n";
      all += launch.report[i];
    }
    if (launch.n_more) {
      all += "\n[" + std::string(static_cast<const metallib_kernel*>(launch.kernel)->name) +
             "] and " + std::to_string(launch.n_more) + " more";
    }
  }
  if (all.empty()) return {};
  fprintf(stderr, "%s\n", all.c_str());
  return {kInternal, all};
}

void AddFresh(void* memory, size_t bytes) {
  if (!(asked.checks & METALLIB_CHECK_INIT) || !bytes) return;
  AllFresh& all = TheFresh();
  FreshMemory fresh{bytes, std::make_unique<uint8_t[]>((bytes + 7) / 8)};
  std::lock_guard<std::mutex> lock(all.mutex);
  all.by_address[static_cast<char*>(memory)] = std::move(fresh);
}

void RemoveFresh(void* memory) {
  if (!(asked.checks & METALLIB_CHECK_INIT)) return;
  AllFresh& all = TheFresh();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.by_address.erase(static_cast<char*>(memory));
}

void MarkWritten(const void* memory, size_t bytes) {
  if (!(asked.checks & METALLIB_CHECK_INIT) || !memory) return;
  auto* begin = static_cast<char*>(const_cast<void*>(memory));
  AllFresh& all = TheFresh();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto at = all.by_address.upper_bound(begin);
  if (at == all.by_address.begin()) return;
  --at;
  const size_t first = size_t(begin - at->first);
  const size_t last = std::min(first + bytes, at->second.bytes);
  for (size_t i = first; i < last; ++i) at->second.written[i / 8] |= uint8_t(1u << i % 8);
}

}  // namespace hostmetal
