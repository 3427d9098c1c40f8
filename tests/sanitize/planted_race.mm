// Two blocks of a concurrent queue add to one number, one after the other with nothing that orders
// them; with an argument, under a lock. ThreadSanitizer must see the first and be silent about the
// second.

#include <dispatch/dispatch.h>

#include <atomic>
#include <mutex>

int main(int argc, char**) {
  // Volatile: neither addition moves past the atomics around it.
  static volatile int sum = 0;
  static std::atomic<int> arrived{0}, added{0};
  static std::mutex mutex;
  const bool locked = argc > 1;
  dispatch_group_t group = dispatch_group_create();
  for (int i = 0; i < 2; ++i) {
    dispatch_group_async(group, dispatch_get_global_queue(0, 0), ^{
      // Both have left the queue's lock before one adds, and the second adds when the first has:
      // two accesses at the same instant may both miss the other. All of it relaxed, which puts
      // them in no order.
      const int turn = arrived.fetch_add(1, std::memory_order_relaxed);
      while (arrived.load(std::memory_order_relaxed) < 2 ||
             added.load(std::memory_order_relaxed) < turn) {
      }
      if (locked) mutex.lock();
      sum = sum + 1;
      if (locked) mutex.unlock();
      added.fetch_add(1, std::memory_order_relaxed);
    });
  }
  dispatch_group_wait(group, DISPATCH_TIME_FOREVER);
  dispatch_release(group);
  return sum == 2 ? 0 : 1;
}
