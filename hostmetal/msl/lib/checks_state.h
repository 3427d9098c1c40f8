// HOSTMETAL_CHECK's knowledge of a launch's threads, and the sentences that it reports. A part of library.cc.
#pragma once

#include "checks_shadow.h"

extern "C" int snprintf(char*, unsigned long, const char*, ...);
extern "C" int memcmp(const void*, const void*, unsigned long);

namespace checks {

enum Space : unsigned { kDevice, kShared };  // what barriers tell apart
constexpr unsigned kFlags[] = {1, 2};        // of metal::mem_flags
constexpr const char* kSpaceNames[] = {"device", "threadgroup"};

constexpr unsigned kMaxPlaces = 1u << 15;
constexpr unsigned kMaxLaunches = 64;
constexpr unsigned kMaxSaid = 64;
constexpr unsigned kNowhere = ~0u;
constexpr unsigned kMaxPublished = 1u << 12;
constexpr long kNear = 256 << 10;  // of a worker's stack, what its frames may take

// A launch among those that may overlap; its threadgroups have the numbers from `first` on.
struct Launch {
  unsigned first;
  const metallib_kernel* kernel;
  metallib_launch sizes;
};

// The variables of threadgroup memory, by the number of their tags.
struct Variable {
  const char* name;
  unsigned element;
};

// The reported accesses. `weak`: of two threads of a simdgroup, which two of different ones tell
// better.
struct Said {
  unsigned long key;
  unsigned report;
  bool weak;
};

// A `constant T&`, of which the wrappers take a copy before the threads run.
struct Copied {
  unsigned long address, size;
  unsigned argument;
};

struct Init;  // checks_init.h

struct Fence {  // what a threadgroup's fences let others see
  unsigned group, time;
};

// At the beginning of metallib_checks.shadow.
struct State {
  metallib_checks* out;
  Group* running;
  char *own_begin, *own_end, *stack;
  Place* places[kMaxPlaces];
  unsigned n_places, n_launches, n_said, group;
  Launch launches[kMaxLaunches];
  Said said[kMaxSaid];
  Variable variables[kMaxStatic];
  unsigned restricted;  // buffers whose argument is constant or restrict, by index
  unsigned n_copied;
  Copied copied[METALLIB_MAX_BUFFERS];
  unsigned long random;
  Fence published[kMaxPublished];
  // The time of the threadgroup that runs.
  unsigned time;
  unsigned last[2], last_any, last_flags;  // when a barrier came: of each space's, of any kind
  const Place* last_place;
  unsigned simd_last[kMaxSimdgroups][2];
  bool all_acquired, acquired[METALLIB_MAX_THREADS];
  unsigned waits_flags[METALLIB_MAX_THREADS];
  Place* waits_at[METALLIB_MAX_THREADS];
  // A write where another thread has written: a race if it changes something, which is seen afterwards.
  unsigned long pending_size, pending_key;
  bool pending_weak;
  const char* pending_at;
  char pending_old[64], pending_text[METALLIB_REPORT_BYTES];
  Init* init;  // of a launch that has this check
  Shadow* shadow() {
    return reinterpret_cast<Shadow*>(reinterpret_cast<char*>(this) +
                                     (sizeof(State) + kPage - 1) / kPage * kPage);
  }
  bool on(unsigned check) const { return out->checks & check; }
};

__thread State* tls_state;

// A piece of memory that a kernel accesses.
struct Target {
  unsigned long address, size;
  Space space;
  unsigned argument;  // a buffer's index, or kNoArgument
  const char* name;
  const char* kind;  // "buffer", "threadgroup"
  unsigned index, element;
  long offset;
};

struct Text {
  char* at;
  unsigned long left;
  void add(const char* words) { add("%s", words); }
  template <class A, class... B>
  void add(const char* format, A value, B... values) {
    const int n = snprintf(at, left, format, value, values...);
    const unsigned long used = n < 0 ? 0 : (unsigned long)n < left ? n : left - 1;
    at += used, left -= used;
  }
};

// The same for (a, b) and (b, a).
unsigned long key_of(unsigned long kind, const Place* a, const Place* b) {
  unsigned long low = (unsigned long)a, high = (unsigned long)b;
  if (low > high) low = high, high = (unsigned long)a;
  return (kind * 31 + low) * 0x9e3779b97f4a7c15ul ^ high;
}
Said* said_before(State& s, unsigned long key) {
  for (unsigned i = 0; i < s.n_said; ++i)
    if (s.said[i].key == key) return &s.said[i];
  return nullptr;
}
// Whether a report with this key would tell nothing new.
bool was_said(State& s, unsigned long key, bool weak = false) {
  const Said* before = said_before(s, key);
  return before && (weak || !before->weak);
}
void report(State& s, unsigned long key, const char* text, bool weak = false) {
  Said* before = said_before(s, key);
  unsigned at = before ? before->report : kNowhere;
  if (!before) {
    if (s.out->n_reports < METALLIB_MAX_REPORTS)
      at = s.out->n_reports++;
    else
      ++s.out->n_more;
    if (s.n_said == kMaxSaid) return;
    before = &s.said[s.n_said++];
  }
  *before = {key, at, weak};
  if (at != kNowhere) snprintf(s.out->report[at], METALLIB_REPORT_BYTES, "%s", text);
}

void flush(State& s) {
  if (!s.pending_size) return;
  const bool changed = memcmp(s.pending_at, s.pending_old, s.pending_size) != 0;
  s.pending_size = 0;
  if (changed && !was_said(s, s.pending_key, s.pending_weak))
    report(s, s.pending_key, s.pending_text, s.pending_weak);
}

unsigned number_of(State& s, Place* place) {
  if (!place) return 0;
  if (place->number && place->number < s.n_places && s.places[place->number] == place)
    return place->number;
  if (s.n_places == kMaxPlaces) return 0;
  s.places[s.n_places] = place;
  return place->number = s.n_places++;
}

const metallib_argument* argument_at(const metallib_kernel* kernel, bool shared, unsigned index) {
  for (unsigned i = 0; kernel && i < kernel->n_arguments; ++i) {
    const metallib_argument& a = kernel->arguments[i];
    if (a.index == index && a.kind <= METALLIB_THREADGROUP &&
        (a.kind == METALLIB_THREADGROUP) == shared)
      return &a;
  }
  return nullptr;
}

// ---- sentences

void add_place(Text& t, const Place* place) {
  if (place && place->line) t.add(" at %s", place->text);
}
void add_thread(Text& t, const State& s, unsigned group, unsigned thread, bool of_group) {
  const Launch* launch = &s.launches[0];
  for (unsigned i = 1; i < s.n_launches; ++i)
    if (s.launches[i].first < group) launch = &s.launches[i];
  Position p;
  place_threadgroup(&launch->sizes, group - 1 - launch->first, p);
  t.add(" by thread (%u, %u, %u)", thread % p.size[0], thread / p.size[0] % p.size[1],
        thread / (p.size[0] * p.size[1]));
  const unsigned* at = p.threadgroup_position;
  if (of_group) t.add(" of threadgroup (%u, %u, %u)", at[0], at[1], at[2]);
  if (launch->kernel != s.out->kernel) t.add(" of kernel '%s'", launch->kernel->name);
}
const char* name_of(Access a) {
  switch (a) {
    case kRead:
      return "read";
    case kWrite:
      return "write";
    case kUpdate:
      return "atomic update";
    case kAtomicRead:
      return "atomic read";
    default:
      return "atomic write";
  }
}
void add_target(Text& t, const Target& to) {
  t.add(" of %lu bytes", to.size);
  if (!to.name) return t.add(" through a pointer of an argument buffer");
  t.add(" at offset %ld", to.offset);
  if (to.element) t.add(" (index %ld)", to.offset / long(to.element));
  if (to.index == 0xffff)
    t.add(" of %s memory '%s'", to.kind, to.name);
  else
    t.add(" of %s(%u) '%s'", to.kind, to.index, to.name);
}
Text begin(const State& s, char* text, const char* check) {
  Text t{text, METALLIB_REPORT_BYTES};
  t.add("[%s] %s: ", static_cast<const metallib_kernel*>(s.out->kernel)->name, check);
  return t;
}

// The barrier that would order two accesses.
void add_order(Text& t, const State& s, const Record& other, unsigned me, Space space,
               bool same_place) {
  const char* name = kSpaceNames[space];
  if (other.group != s.group) {
    if (other.group <= s.launches[s.n_launches - 1].first)
      return t.add(
          "call memoryBarrierWithScope: between the dispatches (setBarrier of an indirect "
          "command), "
          "which may overlap, or use a serial encoder");
    return t.add(
        "no barrier orders threadgroups: use atomics, memory of each threadgroup's own, or two "
        "dispatches");
  }
  if (other.time < s.last_any && s.last_place) {
    t.add("the threadgroup_barrier");
    add_place(t, s.last_place);
    return t.add(" does not order %s memory: give it mem_flags::mem_%s", name, name);
  }
  if (same_place) return t.add("make it an atomic update, or give each thread a place of its own");
  if (other.thread() / kLanes == me / kLanes) {
    return t.add(
        "the threads of a simdgroup need not run in step: call "
        "simdgroup_barrier(mem_flags::mem_%s) between them",
        name);
  }
  t.add("call threadgroup_barrier(mem_flags::mem_%s) between them", name);
}

}  // namespace checks
