// Threads for dispatch queues.
#include "hostmetal/src/dispatch/thread_pool.h"

#import <Foundation/Foundation.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "hostmetal/src/object.h"

namespace hostmetal {
namespace {

// Threads are added while all others are busy or blocked, as libdispatch does it for its serial
// queues.
constexpr unsigned kMaxThreads = 512;
constexpr std::chrono::seconds kIdle{5};

struct Item {
  void (*function)(void*);
  void* context;
};

struct Pool {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Item> items;
  unsigned threads = 0;
  unsigned idle = 0;
};

// Never destroyed: its threads may outlive static destructors.
Pool& ThePool() {
  static Pool* pool = new Pool;
  return *pool;
}

void Worker(void*) {
  Pool& pool = ThePool();
  std::unique_lock<std::mutex> lock(pool.mutex);
  for (;;) {
    while (pool.items.empty()) {
      ++pool.idle;
      bool woken = pool.wake.wait_for(lock, kIdle, [&] { return !pool.items.empty(); });
      --pool.idle;
      if (!woken) {
        --pool.threads;
        return;
      }
    }
    Item item = pool.items.front();
    pool.items.pop_front();
    lock.unlock();
    {
      PoolScope scope;
      item.function(item.context);
    }
    lock.lock();
  }
}

}  // namespace

void StartThread(const char* name, void (*function)(void*), void* context) {
  std::string title(name, 0, 15);
  std::thread([title, function, context] {
    pthread_setname_np(pthread_self(), title.c_str());
    GSRegisterCurrentThread();
    function(context);
    GSUnregisterCurrentThread();
  }).detach();
}

void SubmitToPool(void (*function)(void*), void* context) {
  Pool& pool = ThePool();
  bool start = false;
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    pool.items.push_back({function, context});
    start = pool.items.size() > pool.idle && pool.threads < kMaxThreads;
    if (start) ++pool.threads;
  }
  if (!start) {
    pool.wake.notify_one();
    return;
  }
  try {
    StartThread("dispatch", Worker, nullptr);
  } catch (const std::system_error&) {
    // No thread to be had: the item waits for a running one. Without any it would wait for ever.
    std::unique_lock<std::mutex> lock(pool.mutex);
    if (--pool.threads == 0) {
      lock.unlock();
      throw;
    }
  }
}

unsigned ProcessorCount() {
  static const unsigned count = [] {
    if (const char* wanted = getenv("HOSTMETAL_NUM_THREADS")) {
      long n = strtol(wanted, nullptr, 10);
      if (n > 0) return unsigned(std::min(n, 1024L));
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return unsigned(std::max(CPU_COUNT(&set), 1));
    return unsigned(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  }();
  return count;
}

}  // namespace hostmetal
