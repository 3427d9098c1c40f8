// The thread that watches the clock for dispatches.
#include "hostmetal/src/cpu/deadline.h"

#include <math.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "hostmetal/src/dispatch/thread_pool.h"
#include "hostmetal/src/driver.h"
#include "hostmetal/src/sync.h"

namespace hostmetal {
namespace {

// A signal that comes between two kernels of a thread finds nothing to end; another one follows.
constexpr uint64_t kAgainNs = 5000000;
constexpr double kLongest = 1e6;  // seconds

uint64_t timeout_ns = 0;

}  // namespace

std::string ReadTimeout() {
  const char* asked = getenv("HOSTMETAL_TIMEOUT");
  if (!asked || !*asked) return "";
  char* end;
  const double seconds = strtod(asked, &end);
  if (*end || !(seconds > 0) || seconds > kLongest) {
    return std::string("HOSTMETAL_TIMEOUT is '") + asked +
           "'; expected seconds, more than 0 and at most 1000000";
  }
  timeout_ns = uint64_t(ceil(seconds * 1e9));
  return "";
}

uint64_t Timeout() { return timeout_ns; }

class Watch {
 public:
  // Never destroyed.
  static Watch& Get() {
    static Watch* watch = new Watch;
    return *watch;
  }

  void Add(Deadline* deadline) {
    std::lock_guard<std::mutex> lock(mutex_);
    deadlines_.push_back(deadline);
    changed_.notify_one();
  }
  void Remove(Deadline* deadline) {
    std::lock_guard<std::mutex> lock(mutex_);
    deadlines_.erase(std::find(deadlines_.begin(), deadlines_.end(), deadline));
  }
  void Enter(Deadline* deadline, int thread) {
    std::lock_guard<std::mutex> lock(mutex_);
    deadline->threads_.push_back(thread);
  }
  void Leave(Deadline* deadline, int thread) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& threads = deadline->threads_;
    threads.erase(std::find(threads.begin(), threads.end(), thread));
  }

 private:
  Watch() {
    StartThread("metal-timeout", [](void* self) { static_cast<Watch*>(self)->Loop(); }, this);
  }

  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (deadlines_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const uint64_t now = Now();
      uint64_t next = kForever;
      for (Deadline* deadline : deadlines_) {
        if (now < deadline->end_) {
          next = std::min(next, deadline->end_);
          continue;
        }
        deadline->expired_ = true;
        for (int thread : deadline->threads_) Interrupt(thread);
        next = std::min(next, now + kAgainNs);
      }
      changed_.wait_for(lock, std::chrono::nanoseconds(next - now));
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Deadline*> deadlines_;
};

Deadline::Deadline(uint64_t nanoseconds) : end_(Now() + nanoseconds) { Watch::Get().Add(this); }
Deadline::~Deadline() { Watch::Get().Remove(this); }

Deadline::Thread::Thread(Deadline* deadline) : deadline_(deadline) {
  Watch::Get().Enter(deadline_, int(syscall(SYS_gettid)));
}
Deadline::Thread::~Thread() { Watch::Get().Leave(deadline_, int(syscall(SYS_gettid))); }

}  // namespace hostmetal
