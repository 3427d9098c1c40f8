// Waiting that spins briefly before it sleeps: a context switch costs more than an empty dispatch
// may.
#ifndef HOSTMETAL_SRC_SYNC_H_
#define HOSTMETAL_SRC_SYNC_H_

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace hostmetal {

constexpr uint64_t kForever = ~uint64_t{0};

// Nanoseconds of CLOCK_MONOTONIC.
inline uint64_t Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// On one processor a spinning thread keeps the processor from the thread it waits for.
inline bool LookingPays() {
  static const bool pays = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) > 1;
  }();
  return pays;
}

// A 32-bit word that threads wait on until it changes. It must outlive the call of Set(), which
// looks at the sleepers after a waiter may have returned: never put one on a waiter's stack.
class WaitWord {
 public:
  explicit WaitWord(uint32_t value = 0) : value_(value) {}

  uint32_t load() const { return value_.load(std::memory_order_acquire); }

  void Set(uint32_t value) {
    value_.store(value, std::memory_order_seq_cst);
    Wake();
  }

  void Increment() {
    value_.fetch_add(1, std::memory_order_seq_cst);
    Wake();
  }

  // Returns when the word is not `old` any more (true), or at `deadline` on Now()'s clock (false).
  bool WaitWhile(uint32_t old, uint64_t spin_ns, uint64_t deadline = kForever) {
    if (load() != old) return true;
    if (spin_ns && LookingPays()) {
      uint64_t end = Now() + spin_ns;
      do {
        for (int i = 0; i < 32; ++i) {
          if (load() != old) return true;
          CpuRelax();
        }
      } while (Now() < end);
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool changed = true;
    while (value_.load(std::memory_order_seq_cst) == old) {
      timespec timeout;
      timespec* limit = nullptr;
      if (deadline != kForever) {
        uint64_t now = Now();
        if (now >= deadline) {
          changed = false;
          break;
        }
        timeout.tv_sec = time_t((deadline - now) / 1000000000u);
        timeout.tv_nsec = long((deadline - now) % 1000000000u);
        limit = &timeout;
      }
      syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, old, limit, nullptr, 0);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return changed;
  }

 private:
  void Wake() {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) {
      syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
    }
  }

  std::atomic<uint32_t> value_;
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_SYNC_H_
