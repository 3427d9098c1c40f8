// Threads of a pool that stay for a while where work was, as the next op's comes within microseconds.

#ifndef METAL_OPS_KERNELS_TENSORFLOW_TEAM_H_
#define METAL_OPS_KERNELS_TENSORFLOW_TEAM_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "tensorflow/core/lib/core/threadpool.h"

namespace metal_ops {

// The pool's own way, a closure for each thread and each loop, has it wake a thread that sleeps beside
// one that looks for work. For a language model's token, forty loops of 20 to 100 us, that was more
// than half of the processor's time, and two threads took longer than one.
class Team {
 public:
  // Threads at most, and tasks of a loop.
  static constexpr int64_t kMostThreads = 1 << 10, kMostTasks = 1 << 26;

  // That of a pool, which outlives it: work that stays when a pool ends leaves by itself.
  static Team& Of(tensorflow::thread::ThreadPool* pool) {
    static auto* const mutex = new std::mutex;
    static auto* const teams = new std::map<void*, std::unique_ptr<Team>>;
    const std::lock_guard<std::mutex> lock(*mutex);
    std::unique_ptr<Team>& team = (*teams)[pool];
    if (team == nullptr) team.reset(new Team);
    return *team;
  }

  // Whether a thread is there that waits for the next loop.
  bool Stays() const { return there_[1] && !busy_; }

  // Calls work(task, thread) for each task on the calling thread and `n_threads` - 1 of the pool's.
  // False, and nothing is done, where another loop has the team.
  bool Run(tensorflow::thread::ThreadPool* pool, int64_t n_tasks, int64_t n_threads,
           const std::function<void(int64_t, int64_t)>& work) {
    if (n_threads > kMostThreads || n_tasks >= kMostTasks || busy_.exchange(true)) return false;
    work_ = &work;
    finished_ = 0;
    state_ = State(n_threads, n_tasks);
    for (int64_t i = 1; i < n_threads; ++i) {
      if (!there_[i].exchange(true)) pool->Schedule([this, i] { Stay(i); });
    }
    while (Work(0)) {
    }
    if (!Within(kWait, [&] { return finished_ == n_tasks; })) {
      std::unique_lock<std::mutex> lock(mutex_);
      sleeps_ = true;
      ended_.wait(lock, [&] { return finished_ == n_tasks; });
      sleeps_ = false;
    }
    busy_ = false;
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  // Sleeping and waking takes longer than the others' remaining work, and than the time between two
  // loops of a token.
  static constexpr std::chrono::microseconds kWait{50}, kStay{50};

  template <typename Done>
  static bool Within(std::chrono::microseconds most, const Done& done) {
    const auto end = Clock::now() + most;
    do {
      if (done()) return true;
    } while (Clock::now() < end);
    return false;
  }

  // Threads, tasks, and the next one of these.
  static uint64_t State(int64_t n_threads, int64_t n_tasks) {
    return static_cast<uint64_t>(n_threads) << 52 | static_cast<uint64_t>(n_tasks) << 26;
  }
  static int64_t Tasks(uint64_t state) { return static_cast<int64_t>(state >> 26) % kMostTasks; }
  static int64_t Next(uint64_t state) { return static_cast<int64_t>(state % kMostTasks); }
  static bool Has(uint64_t state, int64_t thread) {
    return thread < static_cast<int64_t>(state >> 52) && Next(state) < Tasks(state);
  }

  // Does a task of the loop that is there. Until it is done the loop's caller waits, and `work_` is
  // unchanged.
  bool Work(int64_t thread) {
    uint64_t state = state_;
    for (;;) {
      if (!Has(state, thread)) return false;
      if (!state_.compare_exchange_weak(state, state + 1)) continue;
      (*work_)(Next(state), thread);
      if (++finished_ == Tasks(state) && sleeps_) {
        const std::lock_guard<std::mutex> lock(mutex_);
        ended_.notify_one();
      }
      return true;
    }
  }

  void Stay(int64_t thread) {
    do {
      while (Within(kStay, [&] { return Work(thread); })) {
      }
      there_[thread] = false;
      // A loop that came in between, whose caller assumed that this thread is there.
    } while (Has(state_, thread) && !there_[thread].exchange(true));
  }

  std::atomic<uint64_t> state_{0};
  std::atomic<int64_t> finished_{0};
  std::atomic<bool> busy_{false}, sleeps_{false};
  std::atomic<bool> there_[kMostThreads] = {};
  const std::function<void(int64_t, int64_t)>* work_ = nullptr;
  std::mutex mutex_;
  std::condition_variable ended_;
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TENSORFLOW_TEAM_H_
