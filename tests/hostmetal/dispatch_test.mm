// The dispatch library.
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "hostmetal/src/sync.h"
#include "tests/hostmetal/harness.h"

namespace {

double Milliseconds(uint64_t since) { return double(hostmetal::Now() - since) * 1e-6; }

void AddOne(void* context) { static_cast<std::atomic<int>*>(context)->fetch_add(1); }

}  // namespace

TEST(serial_queue_keeps_order) {
  dispatch_queue_t queue = dispatch_queue_create("order", DISPATCH_QUEUE_SERIAL);
  auto* seen = new std::vector<int>;
  for (int i = 0; i < 1000; ++i) {
    dispatch_async(queue, ^{
      seen->push_back(i);
    });
  }
  dispatch_sync(queue, ^{
                });
  CHECK_EQ(seen->size(), size_t(1000));
  for (int i = 0; i < int(seen->size()); ++i) CHECK_EQ((*seen)[size_t(i)], i);
  delete seen;
  dispatch_release(queue);
}

TEST(serial_queue_runs_one_at_a_time) {
  dispatch_queue_t queue = dispatch_queue_create("exclusive", nullptr);
  dispatch_group_t group = dispatch_group_create();
  static std::atomic<int> inside{0}, overlaps{0}, runs{0};
  for (int i = 0; i < 200; ++i) {
    dispatch_group_async(group, dispatch_get_global_queue(0, 0), ^{
      dispatch_sync(queue, ^{
        if (inside.fetch_add(1) != 0) ++overlaps;
        ++runs;
        inside.fetch_sub(1);
      });
    });
  }
  CHECK_EQ(dispatch_group_wait(group, DISPATCH_TIME_FOREVER), 0);
  CHECK_EQ(overlaps.load(), 0);
  CHECK_EQ(runs.load(), 200);
  dispatch_release(group);
  dispatch_release(queue);
}

TEST(sync_runs_on_the_calling_thread) {
  dispatch_queue_t queue = dispatch_queue_create("sync", DISPATCH_QUEUE_SERIAL);
  std::thread::id caller = std::this_thread::get_id();
  __block bool same = false;
  dispatch_sync(queue, ^{
    same = std::this_thread::get_id() == caller;
  });
  CHECK(same);
  dispatch_async(queue, ^{
    usleep(20000);
  });
  same = false;
  dispatch_sync(queue, ^{
    same = std::this_thread::get_id() == caller;
  });
  CHECK(same);
  dispatch_release(queue);
}

TEST(concurrent_queue_overlaps) {
  dispatch_queue_t queue = dispatch_queue_create("wide", DISPATCH_QUEUE_CONCURRENT);
  dispatch_semaphore_t a = dispatch_semaphore_create(0), b = dispatch_semaphore_create(0);
  __block intptr_t first = -1, second = -1;
  // Each waits for the other: a serial queue would hang until the timeout.
  dispatch_async(queue, ^{
    dispatch_semaphore_signal(a);
    first = dispatch_semaphore_wait(b, dispatch_time(DISPATCH_TIME_NOW, 10 * NSEC_PER_SEC));
  });
  dispatch_async(queue, ^{
    dispatch_semaphore_signal(b);
    second = dispatch_semaphore_wait(a, dispatch_time(DISPATCH_TIME_NOW, 10 * NSEC_PER_SEC));
  });
  dispatch_barrier_sync(queue, ^{
                        });
  CHECK_EQ(first, 0);
  CHECK_EQ(second, 0);
  dispatch_release(a);
  dispatch_release(b);
  dispatch_release(queue);
}

TEST(barrier_is_exclusive) {
  dispatch_queue_t queue = dispatch_queue_create("barrier", DISPATCH_QUEUE_CONCURRENT);
  static std::atomic<int> readers{0}, bad{0}, before{0}, seen_before{-1};
  for (int i = 0; i < 20; ++i) {
    dispatch_async(queue, ^{
      ++readers;
      usleep(500);
      --readers;
      ++before;
    });
  }
  dispatch_barrier_async(queue, ^{
    seen_before = before.load();
    if (readers.load() != 0) ++bad;
    usleep(2000);
    if (readers.load() != 0) ++bad;
  });
  for (int i = 0; i < 20; ++i) {
    dispatch_async(queue, ^{
      ++readers;
      --readers;
    });
  }
  dispatch_barrier_sync(queue, ^{
                        });
  CHECK_EQ(bad.load(), 0);
  CHECK_EQ(seen_before.load(), 20);
  dispatch_release(queue);
}

TEST(once_runs_once) {
  static dispatch_once_t predicate;
  static std::atomic<int> runs{0}, late{0};
  dispatch_apply(64, DISPATCH_APPLY_AUTO, ^(size_t) {
    dispatch_once(&predicate, ^{
      usleep(2000);
      ++runs;
    });
    if (runs.load() != 1) ++late;
  });
  CHECK_EQ(runs.load(), 1);
  CHECK_EQ(late.load(), 0);
}

TEST(apply_covers_every_iteration) {
  static std::atomic<int> hits[1000];
  dispatch_apply(1000, dispatch_get_global_queue(QOS_CLASS_DEFAULT, 0), ^(size_t i) {
    hits[i].fetch_add(1);
  });
  for (auto& hit : hits) CHECK_EQ(hit.load(), 1);
  dispatch_queue_t serial = dispatch_queue_create("apply", DISPATCH_QUEUE_SERIAL);
  __block size_t last = 0;
  __block bool ordered = true;
  dispatch_apply(100, serial, ^(size_t i) {
    ordered &= i == last;
    last = i + 1;
  });
  CHECK(ordered);
  CHECK_EQ(last, size_t(100));
  dispatch_release(serial);
}

// Says whether it could tell: on a busy machine the second call may come after the first one's time.
static bool AfterWaits() {
  dispatch_semaphore_t done = dispatch_semaphore_create(0);
  __block double elapsed = 0;
  auto* order = new std::vector<int>;
  dispatch_queue_t queue = dispatch_queue_create("after", DISPATCH_QUEUE_SERIAL);
  uint64_t begin = hostmetal::Now();
  dispatch_time_t early = dispatch_walltime(nullptr, 20 * NSEC_PER_MSEC);
  dispatch_time_t late = dispatch_time(DISPATCH_TIME_NOW, 60 * NSEC_PER_MSEC);
  dispatch_after(late, queue, ^{
    elapsed = Milliseconds(begin);
    order->push_back(2);
    dispatch_semaphore_signal(done);
  });
  dispatch_after(early, queue, ^{
    order->push_back(1);
    dispatch_semaphore_signal(done);
  });
  const bool in_time = Milliseconds(begin) < 50;
  for (int i = 0; i < 2; ++i) CHECK_EQ(dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER), 0);
  CHECK(elapsed >= 60);
  CHECK_EQ(order->size(), size_t(2));
  if (in_time) CHECK_EQ((*order)[0], 1);
  delete order;
  dispatch_release(queue);
  dispatch_release(done);
  return in_time;
}

TEST(after_waits) {
  bool told = false;
  for (int tries = 0; tries < 20 && !told; ++tries) told = AfterWaits();
  CHECK(told);
}

TEST(semaphore_times_out_and_counts) {
  dispatch_semaphore_t semaphore = dispatch_semaphore_create(2);
  CHECK_EQ(dispatch_semaphore_wait(semaphore, DISPATCH_TIME_NOW), 0);
  CHECK_EQ(dispatch_semaphore_wait(semaphore, DISPATCH_TIME_NOW), 0);
  uint64_t begin = hostmetal::Now();
  CHECK(dispatch_semaphore_wait(semaphore, dispatch_time(DISPATCH_TIME_NOW, 30000000)) != 0);
  CHECK(Milliseconds(begin) >= 29);
  CHECK_EQ(dispatch_semaphore_signal(semaphore), 0);
  CHECK_EQ(dispatch_semaphore_wait(semaphore, DISPATCH_TIME_NOW), 0);
  CHECK(dispatch_semaphore_create(-1) == nil);
  dispatch_release(semaphore);
}

TEST(group_waits_and_notifies) {
  dispatch_group_t group = dispatch_group_create();
  dispatch_queue_t queue = dispatch_get_global_queue(DISPATCH_QUEUE_PRIORITY_HIGH, 0);
  static std::atomic<int> done{0};
  static std::atomic<int> at_notify{-1};
  for (int i = 0; i < 10; ++i) {
    dispatch_group_async(group, queue, ^{
      usleep(1000);
      ++done;
    });
  }
  dispatch_semaphore_t told = dispatch_semaphore_create(0);
  dispatch_group_notify(group, queue, ^{
    at_notify = done.load();
    dispatch_semaphore_signal(told);
  });
  CHECK_EQ(dispatch_semaphore_wait(told, DISPATCH_TIME_FOREVER), 0);
  CHECK_EQ(at_notify.load(), 10);
  dispatch_group_enter(group);
  CHECK(dispatch_group_wait(group, dispatch_time(DISPATCH_TIME_NOW, 1000000)) != 0);
  dispatch_group_leave(group);
  CHECK_EQ(dispatch_group_wait(group, DISPATCH_TIME_FOREVER), 0);
  dispatch_release(told);
  dispatch_release(group);
}

TEST(f_variants_pass_the_context) {
  static std::atomic<int> count{0};
  dispatch_queue_t queue = dispatch_queue_create("f", DISPATCH_QUEUE_CONCURRENT);
  dispatch_group_t group = dispatch_group_create();
  dispatch_async_f(queue, &count, AddOne);
  dispatch_sync_f(queue, &count, AddOne);
  dispatch_async_and_wait_f(queue, &count, AddOne);
  dispatch_barrier_async_f(queue, &count, AddOne);
  dispatch_barrier_sync_f(queue, &count, AddOne);
  dispatch_group_async_f(group, queue, &count, AddOne);
  dispatch_group_wait(group, DISPATCH_TIME_FOREVER);
  dispatch_group_notify_f(group, queue, &count, AddOne);
  dispatch_after_f(DISPATCH_TIME_NOW, queue, &count, AddOne);
  dispatch_apply_f(4, queue, &count, [](void* c, size_t) { AddOne(c); });
  static dispatch_once_t once;
  dispatch_once_f(&once, &count, AddOne);
  dispatch_barrier_sync(queue, ^{
                        });
  CHECK_EQ(count.load(), 13);
  dispatch_release(group);
  dispatch_release(queue);
}

TEST(labels_and_specifics) {
  static char key;
  dispatch_queue_t queue = dispatch_queue_create("com.example.q", DISPATCH_QUEUE_SERIAL);
  CHECK_EQ(std::string(dispatch_queue_get_label(queue)), "com.example.q");
  static std::atomic<int> destroyed{0};
  dispatch_queue_set_specific(queue, &key, &destroyed, AddOne);
  CHECK(dispatch_get_specific(&key) == nullptr);
  CHECK(dispatch_queue_get_specific(queue, &key) == &destroyed);
  __block void* seen = nullptr;
  __block std::string label;
  dispatch_sync(queue, ^{
    seen = dispatch_get_specific(&key);
    label = dispatch_queue_get_label(DISPATCH_CURRENT_QUEUE_LABEL);
  });
  CHECK(seen == &destroyed);
  CHECK_EQ(label, "com.example.q");
  dispatch_release(queue);
  CHECK_EQ(destroyed.load(), 1);
}

TEST(specifics_that_are_replaced_are_destroyed) {
  static char key;
  static std::atomic<int> first{0}, second{0};
  dispatch_queue_t queue = dispatch_queue_create("com.example.q", DISPATCH_QUEUE_SERIAL);
  dispatch_queue_set_specific(queue, &key, &first, AddOne);
  dispatch_queue_set_specific(queue, &key, &second, AddOne);
  CHECK_EQ(first.load(), 1);
  CHECK_EQ(second.load(), 0);
  dispatch_queue_set_specific(queue, &key, nullptr, nullptr);
  CHECK_EQ(second.load(), 1);
  CHECK(dispatch_queue_get_specific(queue, &key) == nullptr);
  dispatch_release(queue);
  CHECK_EQ(first.load() + second.load(), 2);
}

TEST(queue_outlives_its_last_release) {
  static std::atomic<int> runs{0};
  dispatch_semaphore_t done = dispatch_semaphore_create(0);
  dispatch_queue_t queue = dispatch_queue_create("gone", DISPATCH_QUEUE_SERIAL);
  for (int i = 0; i < 50; ++i) {
    dispatch_async(queue, ^{
      if (++runs == 50) dispatch_semaphore_signal(done);
    });
  }
  dispatch_release(queue);
  CHECK_EQ(dispatch_semaphore_wait(done, dispatch_time(DISPATCH_TIME_NOW, 10 * NSEC_PER_SEC)), 0);
  dispatch_release(done);
}

TEST(context_and_finalizer) {
  static std::atomic<int> finalized{0};
  dispatch_queue_t queue = dispatch_queue_create("finalizer", DISPATCH_QUEUE_SERIAL);
  dispatch_set_context(queue, &finalized);
  dispatch_set_finalizer_f(queue, AddOne);
  CHECK(dispatch_get_context(queue) == &finalized);
  dispatch_retain(queue);
  dispatch_release(queue);
  CHECK_EQ(finalized.load(), 0);
  dispatch_release(queue);
  CHECK_EQ(finalized.load(), 1);
}

TEST(work_items_have_an_autorelease_pool) {
  static std::atomic<int> alive{0};
  dispatch_queue_t queue = dispatch_queue_create("pool", DISPATCH_QUEUE_SERIAL);
  dispatch_async(queue, ^{
    dispatch_data_t data = dispatch_data_create("x", 1, nil,
                                                ^{
                                                });
    ++alive;
    dispatch_set_context(data, &alive);
    dispatch_set_finalizer_f(data,
                             [](void* c) { static_cast<std::atomic<int>*>(c)->fetch_sub(1); });
    [data autorelease];
  });
  dispatch_async(queue, ^{
                 });
  dispatch_sync(queue, ^{
                });
  CHECK_EQ(alive.load(), 0);
  dispatch_release(queue);
}

TEST(many_blocked_items_do_not_starve_the_pool) {
  dispatch_semaphore_t gate = dispatch_semaphore_create(0);
  dispatch_group_t group = dispatch_group_create();
  for (int i = 0; i < 32; ++i) {
    dispatch_group_async(group, dispatch_get_global_queue(0, 0), ^{
      dispatch_semaphore_wait(gate, DISPATCH_TIME_FOREVER);
    });
  }
  dispatch_async(dispatch_get_global_queue(0, 0), ^{
    for (int i = 0; i < 32; ++i) dispatch_semaphore_signal(gate);
  });
  CHECK_EQ(dispatch_group_wait(group, dispatch_time(DISPATCH_TIME_NOW, 20 * NSEC_PER_SEC)), 0);
  dispatch_release(group);
  dispatch_release(gate);
}

TEST(dispatch_data_holds_bytes) {
  const void* bytes = nullptr;
  size_t size = 0;
  dispatch_data_t copied = dispatch_data_create("hello", 5, nil, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
  CHECK_EQ(dispatch_data_get_size(copied), size_t(5));
  dispatch_data_t map = dispatch_data_create_map(copied, &bytes, &size);
  CHECK_EQ(std::string(static_cast<const char*>(bytes), size), "hello");
  dispatch_release(copied);
  CHECK_EQ(std::string(static_cast<const char*>(bytes), size), "hello");
  dispatch_release(map);
  dispatch_data_t given =
      dispatch_data_create(strdup("given"), 5, nil, DISPATCH_DATA_DESTRUCTOR_FREE);
  dispatch_release(given);
  dispatch_semaphore_t freed = dispatch_semaphore_create(0);
  dispatch_data_t own = dispatch_data_create("own", 3, nil, ^{
    dispatch_semaphore_signal(freed);
  });
  dispatch_release(own);
  CHECK_EQ(dispatch_semaphore_wait(freed, dispatch_time(DISPATCH_TIME_NOW, 5 * NSEC_PER_SEC)), 0);
  dispatch_release(freed);
}

TEST(global_queues_survive_a_release) {
  dispatch_queue_t queue = dispatch_get_global_queue(0, 0);
  for (int i = 0; i < 3; ++i) dispatch_release(queue);
  __block bool ran = false;
  dispatch_sync(dispatch_get_global_queue(0, 0), ^{
    ran = true;
  });
  CHECK(ran);
}
