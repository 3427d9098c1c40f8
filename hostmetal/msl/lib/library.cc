// The part that every .metallib carries once: the scheduler of fibers, the bounds checks of the
// checked library, and the exported tables. Compiled as ordinary C++ and linked in by `metallib`.
#include "sync.h"

namespace {

using _msl::kSlotWords;
using _msl::kStagger;
using _msl::Position;
using _msl::Resolver;

constexpr unsigned kLanes = _msl::kSimdWidth;
constexpr unsigned kMaxSimdgroups = METALLIB_MAX_THREADS / kLanes;
constexpr unsigned kMain = METALLIB_MAX_THREADS;  // index of the context that called run()
constexpr unsigned kMaxStatic = 256;

// A simdgroup's lanes, as bit sets. A lane is running, in one of these, or finished.
struct Simdgroup {
  unsigned ready;    // may run
  unsigned pending;  // wait at a simdgroup function
  unsigned barrier;  // wait at a threadgroup barrier
  unsigned long site[kLanes];
  Resolver resolve[kLanes];
  alignas(64) unsigned slots[kSlotWords][kLanes];
};

// One threadgroup in flight; lies at the start of a worker's scratch.
struct Group {
  const metallib_host* host;
  unsigned n_threads, n_simdgroups;
  unsigned current;  // running thread
  unsigned from;     // who jumped last: whose context an arriving jump carries
  unsigned made;     // fibers that exist
  _msl::Body body;
  const void* arguments;
  Position position;  // without local and index
  char* stacks;
  unsigned long stack_bytes;
  void* context[METALLIB_MAX_THREADS + 1];
  Simdgroup simdgroups[kMaxSimdgroups];
};

struct Static {
  char* address;
  unsigned long size;
};

// The work of a worker; on the stack of run().
struct Worker {
  const metallib_launch* launch;
  const char* kernel;
  Group* group;
  const Position* at;
  bool faulted;
  const char* place;  // with -fshader-checks, where the last access is, or nullptr
  void* home[5];      // __builtin_setjmp
  char* threadgroup_base[METALLIB_MAX_BUFFERS];
  unsigned n_static;
  Static statics[kMaxStatic];
};

__thread Group* tls_group;
__thread Worker* tls_worker;

inline unsigned long align(unsigned long n, unsigned long to) { return (n + to - 1) / to * to; }

inline unsigned long stagger(unsigned thread) { return thread % 32 * 128; }

void jump_to(Group* g, unsigned next) {
  g->from = g->current;
  g->current = next;
  const metallib_transfer t = g->host->jump(g->context[next], g);
  g->context[g->from] = t.context;
}

// The lowest pending lane and all that wait at the same call: they go on together.
void meet(Simdgroup& s) {
  const unsigned lowest = __builtin_ctz(s.pending);
  unsigned mask = 0;
  for (unsigned m = s.pending; m; m &= m - 1) {
    const unsigned lane = __builtin_ctz(m);
    if (s.site[lane] == s.site[lowest] && s.resolve[lane] == s.resolve[lowest]) mask |= 1u << lane;
  }
  s.pending &= ~mask;
  s.ready = mask;
  s.resolve[lowest](s.slots, mask);
}

#if MSL_WITH_CHECKS
bool checked_next(Group* g, unsigned* next);
#endif

// The thread that runs next, once the running thread has blocked or finished: kMain when all have
// finished.
unsigned next_thread(Group* g) {
#if MSL_WITH_CHECKS
  if (unsigned next; checked_next(g, &next)) return next;
#endif
  const unsigned start = g->current / kLanes % kMaxSimdgroups;
  for (int round = 0; round < 2; ++round) {
    unsigned i = start;
    do {
      Simdgroup& s = g->simdgroups[i];
      if (!s.ready && s.pending) meet(s);
      if (s.ready) {
        const unsigned lane = __builtin_ctz(s.ready);
        s.ready &= s.ready - 1;
        return i * kLanes + lane;
      }
      if (++i == g->n_simdgroups) i = 0;
    } while (i != start);
    // All that are left wait at the barrier: open it.
    for (i = 0; i < g->n_simdgroups; ++i) {
      g->simdgroups[i].ready = g->simdgroups[i].barrier;
      g->simdgroups[i].barrier = 0;
    }
  }
  return kMain;
}

void block(Group* g) {
  const unsigned next = next_thread(g);
  if (next != g->current) jump_to(g, next);
}

// A fiber lives for the whole run() and executes its thread of one threadgroup after the other.
void fiber(metallib_transfer t) {
  Group* g = static_cast<Group*>(t.data);
  g->context[g->from] = t.context;
  const unsigned me = g->current;
  while (true) {
    Position p = g->position;
    p.index = me;
    p.local[0] = me % p.size[0];
    p.local[1] = me / p.size[0] % p.size[1];
    p.local[2] = me / (p.size[0] * p.size[1]);
    g->body(g->arguments, p);
    jump_to(g, next_thread(g));
  }
}

bool other_faulted(const metallib_launch* launch) {
  return launch->fault && __atomic_load_n(&launch->fault->state, __ATOMIC_RELAXED) != 0;
}

// Sets the part of their position that the threads of threadgroup n share; returns how many they
// are.
unsigned place_threadgroup(const metallib_launch* l, unsigned long n, Position& p) {
  const unsigned long row = n / l->threadgroups[0];
  p.threadgroup_position[0] = unsigned(n % l->threadgroups[0]);
  p.threadgroup_position[1] = unsigned(row % l->threadgroups[1]);
  p.threadgroup_position[2] = unsigned(row / l->threadgroups[1]);
  unsigned threads = 1;
  for (int i = 0; i < 3; ++i) {
    const unsigned long begin = (unsigned long)p.threadgroup_position[i] * l->threadgroup_size[i];
    const unsigned long left = l->threads[i] - begin;
    p.size[i] = unsigned(left < l->threadgroup_size[i] ? left : l->threadgroup_size[i]);
    threads *= p.size[i];
  }
  return threads;
}

void copy3(unsigned* to, const unsigned* from) {
  for (int i = 0; i < 3; ++i) to[i] = from[i];
}

// Records the first fault of a launch and leaves run().
[[noreturn]] void fail(Worker* w, unsigned kind, const char* message, unsigned argument_kind,
                       unsigned index, long offset, unsigned long length, unsigned long binding) {
  metallib_fault* f = w->launch->fault;
  unsigned expected = 0;
  if (f && __atomic_compare_exchange_n(&f->state, &expected, 1u, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED)) {
    f->kind = kind;
    f->kernel = w->kernel;
    f->message = message ? message : w->place;
    f->argument_kind = argument_kind;
    f->index = index;
    f->offset = offset;
    f->length = length;
    f->binding_length = binding;
    for (int i = 0; i < 3; ++i) f->threadgroup[i] = f->thread[i] = ~0u;
    if (Group* g = w->group) {
      const unsigned me = g->current;
      copy3(f->threadgroup, g->position.threadgroup_position);
      const unsigned* size = g->position.size;
      f->thread[0] = me % size[0];
      f->thread[1] = me / size[0] % size[1];
      f->thread[2] = me / (size[0] * size[1]);
    } else if (w->at) {
      copy3(f->threadgroup, w->at->threadgroup_position);
      copy3(f->thread, w->at->local);
    }
    __atomic_store_n(&f->state, 2u, __ATOMIC_RELEASE);
  }
  w->faulted = true;
  if (w->group) {  // back to run()'s own stack first; the fibers are abandoned
    jump_to(w->group, kMain);
    __builtin_unreachable();
  }
  __builtin_longjmp(w->home, 1);
}

}  // namespace

#if MSL_WITH_CHECKS
namespace checks {
void begin_launch(const metallib_launch* l, Group* g, unsigned long own_bytes);
unsigned long begin_group(unsigned long first, unsigned long count, unsigned long n);
void end_launch();
}  // namespace checks
#endif

// ---- fibers

MSL_HIDDEN void _msl_barrier() {
  Group* g = tls_group;
  if (!g) return _msl_unsynchronised();
  g->simdgroups[g->current / kLanes].barrier |= 1u << g->current % kLanes;
  block(g);
}

MSL_HIDDEN unsigned* _msl_slot() {
  Group* g = tls_group;
  if (!g) _msl_unsynchronised();
  return &g->simdgroups[g->current / kLanes].slots[0][g->current % kLanes];
}

MSL_HIDDEN unsigned _msl_lane() {
  if (!tls_group) _msl_unsynchronised();
  return tls_group->current % kLanes;
}

MSL_HIDDEN void _msl_simd(unsigned long site, Resolver resolve) {
  Group* g = tls_group;
  Simdgroup& s = g->simdgroups[g->current / kLanes];
  const unsigned lane = g->current % kLanes;
  s.site[lane] = site;
  s.resolve[lane] = resolve;
  s.pending |= 1u << lane;
  block(g);
}

MSL_HIDDEN void _msl_matrix(__attribute__((noescape)) void* d, MSL_READ a, MSL_READ b, MSL_READ c,
                            unsigned long line, unsigned turned, unsigned, unsigned long site,
                            _msl::WholeMatrix, _msl::LaneMatrix lane) {
  lane(d, a, b, c, line, turned, site, _msl_lane());
}

MSL_HIDDEN void _msl_unsynchronised() { __builtin_trap(); }

MSL_HIDDEN void _msl_assertion(const char* sentence) {
  fail(tls_worker, METALLIB_FAULT_INTERNAL, sentence, 0, 0, 0, 0, 0);
}

MSL_HIDDEN unsigned long _msl_fiber_scratch(const metallib_launch* l,
                                            unsigned long threadgroup_bytes,
                                            unsigned long stack_bytes) {
  const unsigned long threads =
      (unsigned long)l->threadgroup_size[0] * l->threadgroup_size[1] * l->threadgroup_size[2];
  return align(sizeof(Group), 64) + align(threadgroup_bytes, 64) + threads * stack_bytes +
         _msl::kFiberTail;
}

MSL_HIDDEN void _msl_run_fibers(const metallib_launch* l, unsigned long first, unsigned long count,
                                void* scratch, unsigned long threadgroup_bytes,
                                unsigned long stack_bytes, _msl::Body body, const void* arguments) {
  Group* g = static_cast<Group*>(scratch);
  g->host = l->host;
  g->current = kMain;
  g->made = 0;
  g->body = body;
  g->arguments = arguments;
  g->stacks = static_cast<char*>(scratch) + align(sizeof(Group), 64) + align(threadgroup_bytes, 64);
  g->stack_bytes = stack_bytes;
  Group* const outer = tls_group;
  tls_group = g;
  if (tls_worker) tls_worker->group = g;
#if MSL_WITH_CHECKS
  checks::begin_launch(l, g, _msl_fiber_scratch(l, threadgroup_bytes, stack_bytes));
#endif
  for (unsigned long n = first; n < first + count; ++n) {
    if (other_faulted(l)) break;
#if MSL_WITH_CHECKS
    const unsigned long number = checks::begin_group(first, count, n);
#else
    const unsigned long number = n;
#endif
    g->n_threads = place_threadgroup(l, number, g->position);
    g->n_simdgroups = (g->n_threads + kLanes - 1) / kLanes;
    for (unsigned i = 0; i < g->n_simdgroups; ++i) {
      const unsigned lanes = g->n_threads - i * kLanes;
      g->simdgroups[i].ready = lanes >= kLanes ? ~0u : (1u << lanes) - 1;
      g->simdgroups[i].pending = g->simdgroups[i].barrier = 0;
    }
    for (; g->made < g->n_threads; ++g->made) {
      char* top = g->stacks + (g->made + 1) * stack_bytes + stagger(g->made);
      g->context[g->made] = l->host->make(top, stack_bytes, &fiber);
    }
    jump_to(g, next_thread(g));
    if (tls_worker && tls_worker->faulted) break;
  }
#if MSL_WITH_CHECKS
  checks::end_launch();
#endif
  tls_group = outer;
  if (tls_worker) tls_worker->group = nullptr;
}

// ---- simdgroups: kernels whose lanes are loops. A simdgroup has a fiber, as it may wait for others.

namespace {
struct Simdgroups {
  const metallib_host* host;
  unsigned n, current, from, made;
  unsigned ready, waiting;  // bit sets; one that is running or finished is in neither
  _msl::SimdgroupBody body;
  const void* arguments;
  Position position;
  void* context[kMaxSimdgroups + 1];
};
constexpr unsigned kMainSimdgroup = kMaxSimdgroups;
constexpr unsigned long kOwnStack = 512 << 10;  // that a worker has in any case
__thread Simdgroups* tls_simdgroups;

void switch_to(Simdgroups* g, unsigned next) {
  g->from = g->current;
  g->current = next;
  const metallib_transfer t = g->host->jump(g->context[next], g);
  g->context[g->from] = t.context;
}

unsigned next_simdgroup(Simdgroups* g) {
  if (!g->ready) {
    g->ready = g->waiting;
    g->waiting = 0;
  }
  if (!g->ready) return kMainSimdgroup;
  const unsigned next = __builtin_ctz(g->ready);
  g->ready &= g->ready - 1;
  return next;
}

void simdgroup_fiber(metallib_transfer t) {
  Simdgroups* g = static_cast<Simdgroups*>(t.data);
  g->context[g->from] = t.context;
  const unsigned me = g->current;
  while (true) {
    g->body(g->arguments, g->position, me);
    switch_to(g, next_simdgroup(g));
  }
}
}  // namespace

MSL_HIDDEN unsigned _msl_simdgroup_number() {
  return tls_group ? tls_group->current / kLanes : tls_simdgroups->current;
}

MSL_HIDDEN unsigned _msl_simdgroup_count() {
  return tls_group ? tls_group->n_simdgroups : tls_simdgroups->n;
}

MSL_HIDDEN void _msl_simdgroup_barrier() {
  Simdgroups* g = tls_simdgroups;
  if (g->n == 1) return;  // which may be on no fiber
  g->waiting |= 1u << g->current;
  switch_to(g, next_simdgroup(g));
}

MSL_HIDDEN unsigned long _msl_simdgroup_scratch(const metallib_launch* l,
                                                unsigned long threadgroup_bytes,
                                                unsigned long stack_bytes) {
  const unsigned long threads =
      (unsigned long)l->threadgroup_size[0] * l->threadgroup_size[1] * l->threadgroup_size[2];
  return align(threadgroup_bytes, 64) + align(sizeof(Simdgroups), 64) +
         (threads + kLanes - 1) / kLanes * stack_bytes + kStagger + 64;
}

MSL_HIDDEN void _msl_run_simdgroups(const metallib_launch* l, unsigned long first,
                                    unsigned long count, void* scratch, unsigned long stack_bytes,
                                    bool barriers, _msl::SimdgroupBody body,
                                    const void* arguments) {
  Simdgroups* g = static_cast<Simdgroups*>(scratch);
  g->host = l->host;
  g->current = kMainSimdgroup;
  g->made = 0;
  g->body = body;
  g->arguments = arguments;
  char* const stacks = static_cast<char*>(scratch) + align(sizeof(Simdgroups), 64);
  Simdgroups* const outer = tls_simdgroups;
  tls_simdgroups = g;
  for (unsigned long n = first; n < first + count; ++n) {
    if (other_faulted(l)) break;
    const unsigned n_threads = place_threadgroup(l, n, g->position);
    g->n = (n_threads + kLanes - 1) / kLanes;
    // No thread waits: no switches, unless the worker's own stack is too small.
    if ((!barriers || g->n == 1) && stack_bytes <= kOwnStack) {
      for (g->current = 0; g->current < g->n; ++g->current)
        body(arguments, g->position, g->current);
      g->current = kMainSimdgroup;
      continue;
    }
    g->ready = g->n == kLanes ? ~0u : (1u << g->n) - 1;
    g->waiting = 0;
    for (; g->made < g->n; ++g->made) {
      char* top = stacks + (g->made + 1) * stack_bytes + stagger(g->made);
      g->context[g->made] = l->host->make(top, stack_bytes, &simdgroup_fiber);
    }
    switch_to(g, next_simdgroup(g));
  }
  tls_simdgroups = outer;
}

// ---- validation. A pointer into a binding carries a tag in its upper 16 bits, which pointer
// arithmetic keeps; the instrumented code passes every pointer it dereferences through _msl_check,
// which finds the binding by the tag.

namespace {
constexpr int kTagShift = 48;
constexpr unsigned long kAddress = (1ul << kTagShift) - 1;
// 1 + 32 * metallib_argument_kind + index; static threadgroup variables from kTagStatic on.
enum : unsigned { kTagKind = 32, kTagStatic = 256 };
}  // namespace

MSL_HIDDEN void* _msl_tag(const metallib_launch*, unsigned kind, unsigned index, void* address) {
  if (kind == METALLIB_THREADGROUP)
    tls_worker->threadgroup_base[index] = static_cast<char*>(address);
  const unsigned long tag = 1 + kTagKind * kind + index;
  return (void*)((unsigned long)address | tag << kTagShift);
}

MSL_HIDDEN void _msl_at(const Position* position) {
  if (tls_worker) tls_worker->at = position;
}

MSL_HIDDEN bool _msl_faulted() { return tls_worker && other_faulted(tls_worker->launch); }

MSL_HIDDEN void* _msl_tag_static(void* address, unsigned long size) {
  Worker* w = tls_worker;
  if (!w) return address;
  unsigned i = 0;
  while (i < w->n_static && w->statics[i].address != address) ++i;
  if (i == kMaxStatic) return address;  // unchecked from here on
  if (i == w->n_static) w->statics[w->n_static++] = {static_cast<char*>(address), size};
  return (void*)((unsigned long)address | (unsigned long)(kTagStatic + i) << kTagShift);
}

MSL_HIDDEN void* _msl_check(void* pointer, unsigned long size, unsigned write) {
  const unsigned long bits = (unsigned long)pointer, tag = bits >> kTagShift;
  if (tag == 0 || tag == 0xffff) return pointer;
  Worker* w = tls_worker;
  char* address = reinterpret_cast<char*>(bits & kAddress);
  const metallib_launch* l = w->launch;
  char* base;
  unsigned long length;
  unsigned kind = unsigned(tag - 1) / kTagKind, index = unsigned(tag - 1) % kTagKind;
  if (tag >= kTagStatic && tag - kTagStatic < w->n_static) {
    const Static& variable = w->statics[tag - kTagStatic];
    base = variable.address;
    length = variable.size;
    kind = METALLIB_THREADGROUP, index = 0xffff;
  } else if (kind > METALLIB_THREADGROUP || index >= METALLIB_MAX_BUFFERS) {
    fail(w, METALLIB_FAULT_INTERNAL, "the kernel uses a number that is no address as a pointer", 0,
         0, 0, size, 0);
  } else if (kind == METALLIB_THREADGROUP) {
    base = w->threadgroup_base[index];
    length = l->threadgroup_lengths[index];
  } else {
    base = static_cast<char*>(l->buffers[index].address);
    length = l->buffers[index].length;
    if (!base) fail(w, METALLIB_FAULT_UNBOUND, nullptr, kind, index, long(address), size, 0);
  }
  const long offset = address - base;
  if (offset < 0 || (unsigned long)offset + size > length) {
    fail(w, write ? METALLIB_FAULT_WRITE : METALLIB_FAULT_READ, nullptr, kind, index, offset, size,
         length);
  }
  return address;
}

MSL_HIDDEN void _msl_guarded(const metallib_launch* launch, unsigned long first,
                             unsigned long count, void* scratch, const char* kernel,
                             void (*inner)(const metallib_launch*, unsigned long, unsigned long,
                                           void*)) {
  Worker worker;
  worker.launch = launch;
  worker.kernel = kernel;
  worker.group = nullptr;
  worker.at = nullptr;
  worker.faulted = false;
  worker.place = nullptr;
  worker.n_static = 0;
  Worker* const outer = tls_worker;
  tls_worker = &worker;
  if (__builtin_setjmp(worker.home) == 0) inner(launch, first, count, scratch);
  tls_worker = outer;
}

#include "log_writer.h"
#if MSL_WITH_COVERAGE
#include "coverage.h"
#endif
#if MSL_WITH_DEBUG
#include "debug.h"
#endif
#if MSL_WITH_CHECKS
#include "checks.h"
#endif
#include "texture_access.h"

// ---- the exported tables. The linker gathers each shader's kernels in sections.

extern "C" {
extern const metallib_kernel* const __start_msl_kernels[]
    __attribute__((weak, visibility("hidden")));
extern const metallib_kernel* const __stop_msl_kernels[]
    __attribute__((weak, visibility("hidden")));
extern const metallib_kernel* const __start_msl_kernels_checked[]
    __attribute__((weak, visibility("hidden")));
extern const metallib_kernel* const __stop_msl_kernels_checked[]
    __attribute__((weak, visibility("hidden")));
extern const metallib_kernel* const __start_msl_kernels_wide[]
    __attribute__((weak, visibility("hidden")));
extern const metallib_kernel* const __stop_msl_kernels_wide[]
    __attribute__((weak, visibility("hidden")));
}

static int supported() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return MSL_CPU_TEST;
#else
  return 1;
#endif
}

extern "C" {
extern const metallib_gpu_code __start_msl_gpu[] __attribute__((weak, visibility("hidden")));
extern const metallib_gpu_code __stop_msl_gpu[] __attribute__((weak, visibility("hidden")));
}

#define MSL_EXPORT extern "C" __attribute__((visibility("default")))
MSL_EXPORT const metallib_library metallib_v1 = {METALLIB_MAGIC,
                                                 METALLIB_ABI_VERSION,
                                                 sizeof(metallib_library),
                                                 0,
                                                 __start_msl_kernels,
                                                 __stop_msl_kernels,
                                                 MSL_COMPILER,
                                                 MSL_TARGET,
                                                 &supported};
MSL_EXPORT const metallib_gpu_library metallib_gpu_v1 = {__start_msl_gpu, __stop_msl_gpu};
#if MSL_WITH_CHECKED
MSL_EXPORT const metallib_library metallib_v1_checked = {METALLIB_MAGIC,
                                                         METALLIB_ABI_VERSION,
                                                         sizeof(metallib_library),
                                                         1 + MSL_WITH_CHECKS,
                                                         __start_msl_kernels_checked,
                                                         __stop_msl_kernels_checked,
                                                         MSL_COMPILER,
                                                         MSL_TARGET,
                                                         &supported};
#endif
#if MSL_WITH_WIDE
static int wide_supported() {
  __builtin_cpu_init();
  return __builtin_cpu_supports(MSL_WIDE_TARGET);
}
MSL_EXPORT const metallib_library metallib_v1_wide = {METALLIB_MAGIC,
                                                      METALLIB_ABI_VERSION,
                                                      sizeof(metallib_library),
                                                      0,
                                                      __start_msl_kernels_wide,
                                                      __stop_msl_kernels_wide,
                                                      MSL_COMPILER,
                                                      MSL_WIDE_TARGET,
                                                      &wide_supported};
#endif
