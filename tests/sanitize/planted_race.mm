// Two blocks of a concurrent queue add to one number at a time; with an argument, under a lock.
// ThreadSanitizer must see the first and be silent about the second.

#include <dispatch/dispatch.h>

#include <atomic>
#include <mutex>

int main(int argc, char**) {
  static int sum = 0;
  static std::atomic<int> arrived{0};
  static std::mutex mutex;
  const bool locked = argc > 1;
  dispatch_group_t group = dispatch_group_create();
  for (int i = 0; i < 2; ++i) {
    dispatch_group_async(group, dispatch_get_global_queue(0, 0), ^{
      // Relaxed: that they meet puts them in no order.
      arrived.fetch_add(1, std::memory_order_relaxed);
      while (arrived.load(std::memory_order_relaxed) < 2) {
      }
      if (locked) mutex.lock();
      ++sum;
      if (locked) mutex.unlock();
    });
  }
  dispatch_group_wait(group, DISPATCH_TIME_FOREVER);
  dispatch_release(group);
  return sum > 0 ? 0 : 1;
}
