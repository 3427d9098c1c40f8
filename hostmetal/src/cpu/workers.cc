// The threads on which all queues run the threadgroups of their kernels.
#include "hostmetal/src/cpu/workers.h"

#include <algorithm>

#include "hostmetal/src/dispatch/thread_pool.h"

namespace hostmetal {
namespace {

// Waking a sleeping worker costs some microseconds: below this a launch stays on its own thread.
constexpr uint64_t kShareFromNs = 15000;
// How long a worker looks for the next launch before it sleeps.
constexpr uint64_t kSpinNs = 20000;
// How long a worker stays with one job while others want it.
constexpr uint64_t kPieceNs = 2000000;

}  // namespace

Workers& Workers::Get() {
  static Workers* workers = new Workers;
  return *workers;
}

Workers::Workers() : width_(ProcessorCount()) {
  for (unsigned i = 1; i < width_; ++i) StartThread("metal-worker", Thread, this);
}

void Workers::Thread(void* self) { static_cast<Workers*>(self)->Loop(); }

bool Workers::Job::Take(uint64_t* first, uint64_t* count) {
  uint64_t seen = next.load(std::memory_order_relaxed);
  if (seen >= total) return false;
  // Shrinking pieces: few calls, and an even end when a processor is taken away.
  uint64_t piece = (total - seen) / (4 * width);
  const uint64_t each = item_ns.load(std::memory_order_relaxed);
  if (each) piece = std::min(piece, kPieceNs / each);
  piece = std::max<uint64_t>(1, piece);
  *first = next.fetch_add(piece, std::memory_order_relaxed);
  if (*first >= total) return false;
  *count = std::min(piece, total - *first);
  return true;
}

void Workers::Job::Work(const std::atomic<uint32_t>* jobs) {
  uint64_t first, count, begin = Now();
  while (Take(&first, &count)) {
    body(context, first, count);
    const uint64_t end = Now();
    busy_ns.fetch_add(end - begin, std::memory_order_relaxed);
    item_ns.store(std::max<uint64_t>(1, (end - begin) / count), std::memory_order_relaxed);
    begin = end;
    if (jobs && jobs->load(std::memory_order_relaxed) > 1) return;
  }
}

void Workers::Loop() {
  for (;;) {
    uint32_t seen = posted_.load();
    Job* job = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      // The job that fewest are at: a long one does not keep all processors from another queue's.
      for (Job* candidate : jobs_) {
        if (candidate->next.load(std::memory_order_relaxed) >= candidate->total) continue;
        if (!job || candidate->users.load(std::memory_order_relaxed) <
                        job->users.load(std::memory_order_relaxed)) {
          job = candidate;
        }
      }
      if (job) job->users.fetch_add(1, std::memory_order_relaxed);
    }
    if (!job) {
      posted_.WaitWhile(seen, kSpinNs);
      continue;
    }
    job->Work(&job_count_);
    // The job lives on its owner's stack and is gone after this.
    if (job->users.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_.Increment();
  }
}

void Workers::Share(Job* job) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(job);
    ++job_count_;
  }
  posted_.Increment();
  job->Work(nullptr);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
    --job_count_;
  }
  for (;;) {
    uint32_t seen = finished_.load();
    if (job->users.load(std::memory_order_acquire) == 0) break;
    finished_.WaitWhile(seen, kSpinNs);
  }
}

uint64_t Workers::Run(Body body, void* context, uint64_t total, uint64_t expected_ns) {
  uint64_t begin = Now();
  uint64_t done = 0;
  if (width_ == 1 || total == 1 || expected_ns < kShareFromNs) {
    // Alone, but with an eye on the clock: the expectation may be wrong.
    uint64_t piece = width_ == 1 ? total : std::max<uint64_t>(1, total / 8);
    while (done < total) {
      uint64_t count = std::min(piece, total - done);
      body(context, done, count);
      done += count;
      if (total - done > 1 && Now() - begin > kShareFromNs) break;
    }
    if (done == total) return Now() - begin;
  }
  uint64_t alone = Now() - begin;
  const uint64_t item_ns = done ? alone / done : expected_ns / total;
  Job job{body, context, total, width_, {done}, {item_ns}};
  Share(&job);
  return alone + job.busy_ns.load(std::memory_order_relaxed);
}

}  // namespace hostmetal
