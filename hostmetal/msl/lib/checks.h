// HOSTMETAL_CHECK and HOSTMETAL_SCHEDULE, for kernels compiled with -fshader-checks: the compiler calls these
// functions at every access of memory and every barrier. A part of library.cc. All threadgroups of a
// launch run on one thread of the processor, so that nothing here has to be locked.
#pragma once

#include "checks_init.h"

namespace checks {

// The beginning of the sentence about an access.
Text begin(const State& s, char* text, const char* check, const Target& to, Access access,
           unsigned me, const Place* place) {
  Text t = begin(s, text, check);
  t.add("%s", name_of(access));
  add_target(t, to);
  add_thread(t, s, s.group, me, true);
  add_place(t, place);
  return t;
}

// ---- races

// Whether everything that `r` is part of comes before what thread `me` does now.
bool ordered(const State& s, const Record& r, unsigned me, Space space) {
  if (!r.group) return true;
  if (r.group == s.group) {
    if (r.thread() == me || r.time < s.last[space]) return true;
    const unsigned simdgroup = me / kLanes;
    if (r.thread() / kLanes == simdgroup && r.time < s.simd_last[simdgroup][space]) return true;
  } else if (space == kShared) {
    return true;  // an earlier threadgroup's, whose memory this is no more
  }
  if (!s.all_acquired && !s.acquired[me]) return false;
  const Fence& fence = s.published[r.group % kMaxPublished];
  // Another threadgroup's fence in the same place: nothing is known, and nothing is said.
  return fence.group && (fence.group != r.group || r.time <= fence.time);
}

// Keeps two accesses of different threads, such that who comes into conflict with any does so with one of them.
void keep(const State& s, Record (&two)[2], const Record& now, unsigned me, Space space) {
  for (Record& r : two) {
    // A counter's start stays beside its first update, until a barrier.
    const bool start = r.access() == kAtomicWrite && now.access() != kAtomicWrite &&
                       r.group == s.group && r.time >= s.last[space];
    if (!start && ordered(s, r, me, space)) {
      r = now;
      return;
    }
  }
  // Both are of others: the more different ones are kept.
  if (two[0].group == two[1].group && now.group != two[0].group)
    two[1] = now;
  else if (two[0].thread() / kLanes == two[1].thread() / kLanes &&
           me / kLanes != two[0].thread() / kLanes)
    two[1] = now;
}

void say_race(State& s, const Target& to, Access access, unsigned me, Place* place,
              const Record& other) {
  Place* other_place = s.places[other.place];
  const unsigned long key = key_of(METALLIB_CHECK_RACE, place, other_place);
  const bool weak = other.group == s.group && other.thread() / kLanes == me / kLanes;
  if (was_said(s, key, weak)) return;
  char text[METALLIB_REPORT_BYTES];
  Text t = begin(s, text, "race", to, access, me, place);
  t.add(", and %s", name_of(other.access()));
  add_thread(t, s, other.group, other.thread(), other.group != s.group);
  add_place(t, other_place);
  t.add(", are not ordered; ");
  if (is_atomic(access) != is_atomic(other.access())) t.add("make both atomic, or ");
  const bool same = place && other_place && place->line == other_place->line && !is_atomic(access);
  add_order(t, s, other, me, to.space, same && place->column == other_place->column);
  // `a[0] = a[0] + x`, or `a[t] += a[t + 1]`.
  if (same && other.group == s.group && place->column != other_place->column)
    t.add(", or make it an atomic update");
  if (access == kWrite && other.access() == kWrite && to.size <= sizeof s.pending_old) {
    s.pending_size = to.size;
    s.pending_key = key;
    s.pending_weak = weak;
    s.pending_at = reinterpret_cast<const char*>(to.address);
    __builtin_memcpy(s.pending_old, s.pending_at, to.size);
    __builtin_memcpy(s.pending_text, text, sizeof text);
  } else {
    report(s, key, text, weak);
  }
}

void say_alias(State& s, const Target& to, Access access, unsigned me, Place* place,
               const Record& other) {
  Place* other_place = s.places[other.place];
  const unsigned key_index = to.argument << 8 | other.argument();
  const unsigned long key =
      key_of(METALLIB_CHECK_ALIAS, reinterpret_cast<Place*>((unsigned long)key_index), nullptr);
  if (was_said(s, key)) return;
  const auto* kernel = static_cast<const metallib_kernel*>(s.out->kernel);
  char text[METALLIB_REPORT_BYTES];
  Text t = begin(s, text, "alias", to, access, me, place);
  const metallib_argument* a = argument_at(kernel, false, other.argument());
  t.add(", where buffer(%u) '%s' lies, too: %s", other.argument(), a ? a->name : "",
        name_of(other.access()));
  add_place(t, other_place);
  t.add(
      "; the shader says that one of them is constant or restrict: bind memory that does not "
      "overlap, or leave that out");
  report(s, key, text);
}

// A write to the target of a `constant T&`.
void look_at_copied(State& s, const Target& to, Access access, unsigned me, Place* place) {
  for (unsigned i = 0; i < s.n_copied; ++i) {
    const Copied& c = s.copied[i];
    if (c.argument == to.argument || to.address >= c.address + c.size ||
        to.address + to.size <= c.address)
      continue;
    const Record read = {s.group, 0, 0, Record::pack(me, kRead, c.argument)};
    say_alias(s, to, access, me, place, read);
  }
}

void look(State& s, const Target& to, Access access, unsigned me, Place* place) {
  const Record now = {s.group, s.time, number_of(s, place), Record::pack(me, access, to.argument)};
  const bool race = s.on(METALLIB_CHECK_RACE),
             alias = s.on(METALLIB_CHECK_ALIAS) && to.argument != kNoArgument;
  s.shadow()->each(to.address, to.size, [&](Cell& cell) {
    Record* conflict = nullptr;
    auto against = [&](Record& r) {
      if (race && !conflict && !ordered(s, r, me, to.space)) conflict = &r;
      if (alias && r.group && r.argument() != kNoArgument && r.argument() != to.argument &&
          (s.restricted >> to.argument | s.restricted >> r.argument()) & 1) {
        say_alias(s, to, access, me, place, r);
      }
    };
    if (access != kRead && access != kAtomicRead) {
      for (Record& r : cell.reads) against(r);
    }
    if (!is_atomic(access)) {
      for (Record& r : cell.atomics)
        if (access == kWrite || r.access() != kAtomicRead) against(r);
    } else if (to.space == kShared) {
      // A counter's start and its updates, in whichever order.
      for (Record& r : cell.atomics)
        if ((access == kUpdate && r.access() == kAtomicWrite) ||
            (access == kAtomicWrite && r.access() == kUpdate))
          against(r);
    }
    against(cell.write);
    if (conflict) say_race(s, to, access, me, place, *conflict);
    if (writes(access)) cell.written = s.group;
    if (access == kWrite) {
      cell.write = now;
      __builtin_memset(cell.reads, 0, sizeof cell.reads + sizeof cell.atomics);
    } else {
      keep(s, access == kRead ? cell.reads : cell.atomics, now, me, to.space);
    }
    return true;
  });
}

// ---- memory that nothing was written to

void say_init(State& s, const Target& to, unsigned me, Place* place) {
  const unsigned long key = key_of(METALLIB_CHECK_INIT, place, nullptr);
  if (was_said(s, key)) return;
  char text[METALLIB_REPORT_BYTES];
  Text t = begin(s, text, "init", to, kRead, me, place);
  t.add(
      ", which this threadgroup has not written: store a value first, and call "
      "threadgroup_barrier(mem_flags::mem_threadgroup)");
  report(s, key, text);
}

// For threadgroup memory, before look() records the access. Plain accesses have a shadow (checks_init.h).
void look_at_shared(State& s, const Target& to, Access access, unsigned me, Place* place) {
  if (!is_atomic(access) || access == kAtomicWrite) return;
  bool written = true;
  s.shadow()->each(to.address, to.size,
                   [&](Cell& cell) { return written = cell.written == s.group; });
  if (!written) say_init(s, to, me, place);
}

// Writes to private buffers. Atomic updates are not told of: counters begin at the zeros that Metal has new buffers hold.
void look_at_fresh(State& s, const Target& to, Access access) {
  for (unsigned i = 0; i < s.out->n_fresh; ++i) {
    const metallib_fresh& fresh = s.out->fresh[i];
    const unsigned long at = to.address - (unsigned long)fresh.address;
    if (at >= fresh.length) continue;
    for (unsigned long k = at; writes(access) && k < at + to.size && k < fresh.length; ++k)
      fresh.written[k / 8] |= 1u << k % 8;
    return;
  }
}

// ---- the order of threads

unsigned next_random(State& s) {
  s.random ^= s.random << 13;
  s.random ^= s.random >> 7;
  s.random ^= s.random << 17;
  return unsigned(s.random >> 32);
}

unsigned pick(State& s, unsigned lanes) {
  if (s.out->schedule == METALLIB_SCHEDULE_REVERSE) return 31 - __builtin_clz(lanes);
  if (s.out->schedule == METALLIB_SCHEDULE_RANDOM) {
    for (unsigned skip = next_random(s) % unsigned(__builtin_popcount(lanes)); skip; --skip)
      lanes &= lanes - 1;
  }
  return __builtin_ctz(lanes);
}

void open_barrier(State& s, Group* g);

// As next_thread() of library.cc, in the order that was asked for.
unsigned next_thread(State& s, Group* g) {
  const unsigned n = g->n_simdgroups, schedule = s.out->schedule;
  const bool reverse = schedule == METALLIB_SCHEDULE_REVERSE;
  unsigned start = g->current == kMain ? (reverse ? n - 1 : 0) : g->current / kLanes;
  if (schedule == METALLIB_SCHEDULE_RANDOM) start = next_random(s) % n;
  for (int round = 0; round < 2; ++round) {
    for (unsigned k = 0; k < n; ++k) {
      const unsigned i = reverse ? (start + n - k) % n : (start + k) % n;
      Simdgroup& one = g->simdgroups[i];
      if (!one.ready && one.pending) meet(one);
      if (!one.ready) continue;
      const unsigned lane = pick(s, one.ready);
      one.ready &= ~(1u << lane);
      return i * kLanes + lane;
    }
    open_barrier(s, g);
    for (unsigned i = 0; i < n; ++i) {
      g->simdgroups[i].ready = g->simdgroups[i].barrier;
      g->simdgroups[i].barrier = 0;
    }
  }
  return kMain;
}

unsigned long greatest_divisor(unsigned long a, unsigned long b) {
  while (b) {
    const unsigned long rest = a % b;
    a = b, b = rest;
  }
  return a;
}

// The number of the n-th threadgroup of [first, first + count).
unsigned long threadgroup_number(State& s, unsigned long first, unsigned long count,
                                 unsigned long n) {
  if (s.out->schedule == METALLIB_SCHEDULE_REVERSE) return first + count - 1 - (n - first);
  if (s.out->schedule != METALLIB_SCHEDULE_RANDOM || count < 2) return n;
  unsigned long step = s.out->seed * 0x9e3779b97f4a7c15ul % count;
  while (greatest_divisor(step, count) != 1) ++step;
  return first + ((n - first) * step + s.out->seed) % count;
}

// ---- barriers

void say_divergent(State& s, Group* g, Place* place, const char* what, unsigned reach, unsigned of,
                   unsigned missing, bool waits, const char* group) {
  Place* elsewhere = waits ? s.waits_at[missing] : nullptr;
  const unsigned long key = key_of(METALLIB_CHECK_BARRIER, place, elsewhere);
  if (was_said(s, key)) return;
  char text[METALLIB_REPORT_BYTES];
  Text t = begin(s, text, "barrier");
  const unsigned* at = g->position.threadgroup_position;
  t.add("%s", what);
  add_place(t, place);
  t.add(" is reached by %u of the %u threads of a %s", reach, of, group);
  t.add(", in threadgroup (%u, %u, %u); thread", at[0], at[1], at[2]);
  const unsigned* size = g->position.size;
  t.add(" (%u, %u, %u)", missing % size[0], missing / size[0] % size[1],
        missing / (size[0] * size[1]));
  if (elsewhere) {
    t.add(" waits");
    add_place(t, elsewhere);
  } else {
    t.add(waits ? " waits elsewhere" : " has ended");
  }
  t.add("; take it out of the branch, so that all threads of the %s reach the same one", group);
  report(s, key, text);
}

void open_barrier(State& s, Group* g) {
  flush(s);
  unsigned first = kMain, reach = 0, missing = kMain, other = kMain, flags = 7;
  for (unsigned t = 0; t < g->n_threads; ++t) {
    if (!(g->simdgroups[t / kLanes].barrier >> t % kLanes & 1)) {
      if (missing == kMain) missing = t;
      continue;
    }
    if (first == kMain) first = t;
    flags &= s.waits_flags[t];
    const bool same =
        s.waits_at[t] == s.waits_at[first] ||
        (s.waits_at[t] && s.waits_at[first] && s.waits_at[t]->line == s.waits_at[first]->line &&
         s.waits_at[t]->column == s.waits_at[first]->column &&
         s.waits_at[t]->calls == s.waits_at[first]->calls);
    if (same)
      ++reach;
    else if (other == kMain)
      other = t;
  }
  if (first == kMain) return;
  if (s.on(METALLIB_CHECK_BARRIER) && reach < g->n_threads) {
    const bool waits = other != kMain;
    say_divergent(s, g, s.waits_at[first], "threadgroup_barrier", reach, g->n_threads,
                  waits ? other : missing, waits, "threadgroup");
  }
  s.last_any = ++s.time;
  s.last_place = s.waits_at[first];
  s.last_flags = flags;
  for (unsigned space = 0; space < 2; ++space)
    if (flags & kFlags[space]) s.last[space] = s.time;
  for (unsigned t = 0; t < g->n_threads; ++t) s.all_acquired = s.all_acquired || s.acquired[t];
}

// ---- a launch

void begin_launch(const metallib_launch* l, Group* g, unsigned long own_bytes) {
  State* s = l->checks ? static_cast<State*>(l->checks->shadow) : nullptr;
  tls_state = s;
  if (!s) return;
  s->out = l->checks;
  s->running = g;
  s->own_begin = reinterpret_cast<char*>(g), s->own_end = s->own_begin + own_bytes;
  s->stack = static_cast<char*>(__builtin_frame_address(0));
  s->pending_size = 0;
  s->n_said = 0;
  begin_init(*s, own_bytes);
  Shadow* shadow = s->shadow();
  shadow->set_up(l->checks->shadow_bytes -
                 (reinterpret_cast<char*>(shadow) - reinterpret_cast<char*>(s)));
  unsigned first = 0;
  if (l->checks->overlaps && s->n_launches && s->n_launches < kMaxLaunches) {
    const Launch& before = s->launches[s->n_launches - 1];
    const unsigned* n = before.sizes.threadgroups;
    first = before.first + n[0] * n[1] * n[2];
  } else {
    shadow->forget();
    s->n_launches = 0;
    s->n_places = 1;
    __builtin_memset(s->published, 0, sizeof s->published);
  }
  const auto* kernel = static_cast<const metallib_kernel*>(l->checks->kernel);
  s->launches[s->n_launches++] = {first, kernel, *l};
  s->restricted = s->n_copied = 0;
  for (unsigned i = 0; kernel && i < kernel->n_arguments; ++i) {
    const metallib_argument& a = kernel->arguments[i];
    if (a.kind == METALLIB_CONSTANT ||
        (a.kind == METALLIB_DEVICE && a.flags & METALLIB_ARG_RESTRICT))
      s->restricted |= 1u << a.index;
    if (a.kind == METALLIB_CONSTANT && a.flags & METALLIB_ARG_REFERENCE) {
      const auto address = (unsigned long)l->buffers[a.index].address;
      s->copied[s->n_copied++] = {address, a.pointee_size, a.index};
    }
  }
}

// Memory that was never written holds another number in each threadgroup, in random orders.
void fill_anyhow(State& s, char* at, unsigned long size) {
  if (s.out->schedule == METALLIB_SCHEDULE_RANDOM)
    __builtin_memset(at, 1 + next_random(s) % 126, size);
}

// The n-th to run of [first, first + count).
unsigned long begin_group(unsigned long first, unsigned long count, unsigned long n) {
  if (!tls_state) return n;
  State& s = *tls_state;
  flush(s);
  flush_init(s);
  const unsigned long number = threadgroup_number(s, first, count, n);
  s.group = s.launches[s.n_launches - 1].first + 1 + unsigned(number);
  s.time = 1;
  s.last[0] = s.last[1] = s.last_any = 0;
  s.last_place = nullptr;
  __builtin_memset(s.simd_last, 0, sizeof s.simd_last);
  s.all_acquired = false;
  __builtin_memset(s.acquired, 0, sizeof s.acquired);
  begin_init_group(s);
  s.random = (s.out->seed + 1) * 0x9e3779b97f4a7c15ul ^ (number + 1) * 0xbf58476d1ce4e5b9ul;
  char* const shared = s.own_begin + align(sizeof(Group), 64);
  fill_anyhow(s, shared, s.running->stacks - shared);
  const Worker* w = tls_worker;
  for (unsigned i = 0; w && i < w->n_static; ++i)
    fill_anyhow(s, w->statics[i].address, w->statics[i].size);
  fill_anyhow(s, _msl_never_written, sizeof _msl_never_written);
  return number;
}

void end_launch() {
  if (tls_state) {
    flush(*tls_state);
    flush_init(*tls_state);
    end_init(*tls_state);
  }
  tls_state = nullptr;
}

}  // namespace checks

namespace {
bool checked_next(Group* g, unsigned* next) {
  checks::State* s = checks::tls_state;
  if (!s || s->running != g) return false;
  *next = checks::next_thread(*s, g);
  return true;
}
}  // namespace

// ---- what compiled kernels call

MSL_HIDDEN void _msl_checked_barrier(unsigned flags, checks::Place* place) {
  checks::State* s = checks::tls_state;
  if (s) {
    checks::flush(*s);
    s->waits_flags[tls_group->current] = flags;
    s->waits_at[tls_group->current] = place;
  }
  _msl_barrier();
}

MSL_HIDDEN void _msl_checked_simd_barrier(unsigned flags, checks::Place* place) {
  checks::State* s = checks::tls_state;
  if (!s) return;
  checks::flush(*s);
  s->waits_flags[tls_group->current] = flags;
  s->waits_at[tls_group->current] = place;
}

MSL_HIDDEN void _msl_checked_simd_meets(_msl::Slots slots, unsigned mask) {
  checks::State* s = checks::tls_state;
  if (!s) return;
  Group* g = tls_group;
  const unsigned simdgroup =
      unsigned((reinterpret_cast<char*>(slots) - reinterpret_cast<char*>(g->simdgroups[0].slots)) /
               long(sizeof(Simdgroup)));
  const unsigned base = simdgroup * kLanes, first = base + __builtin_ctz(mask);
  const unsigned lanes = g->n_threads - base < kLanes ? g->n_threads - base : kLanes;
  const unsigned all = lanes == kLanes ? ~0u : (1u << lanes) - 1;
  if (mask != all && s->on(METALLIB_CHECK_BARRIER)) {
    const unsigned missing = base + __builtin_ctz(all & ~mask);
    const Simdgroup& one = g->simdgroups[simdgroup];
    const bool waits = (one.pending | one.barrier) >> missing % kLanes & 1;
    checks::say_divergent(*s, g, s->waits_at[first], "simdgroup_barrier",
                          unsigned(__builtin_popcount(mask)), lanes, missing, waits, "simdgroup");
  }
  ++s->time;
  for (unsigned space = 0; space < 2; ++space)
    if (s->waits_flags[first] & checks::kFlags[space]) s->simd_last[simdgroup][space] = s->time;
  // All of them see what one has seen behind its fence.
  if (!(s->waits_flags[first] & checks::kFlags[checks::kDevice])) return;
  bool acquired = false;
  for (unsigned m = mask; m; m &= m - 1)
    acquired = acquired || s->acquired[base + __builtin_ctz(m)];
  for (unsigned m = mask; acquired && m; m &= m - 1) s->acquired[base + __builtin_ctz(m)] = true;
}

MSL_HIDDEN void _msl_checked_fence(int, int) {
  checks::State* s = checks::tls_state;
  if (!s) return;
  checks::flush(*s);
  s->published[s->group % checks::kMaxPublished] = {s->group, s->time};
  s->acquired[tls_group->current] = true;
}

MSL_HIDDEN void* _msl_tag_variable(void* address, unsigned long size, const char* name,
                                   unsigned element) {
  const unsigned before = tls_worker ? tls_worker->n_static : 0;
  void* tagged = _msl_tag_static(address, size);
  const unsigned long tag = (unsigned long)tagged >> kTagShift;
  if (checks::tls_state && tag >= kTagStatic) {
    checks::tls_state->variables[tag - kTagStatic] = {name, element};
    if (tls_worker->n_static > before)
      checks::fill_anyhow(*checks::tls_state, static_cast<char*>(address), size);
  }
  return tagged;
}

MSL_HIDDEN void* _msl_access(void* pointer, unsigned long size, unsigned kind,
                             checks::Place* place) {
  using namespace checks;
  State* s = tls_state;
  Group* g = tls_group;
  const unsigned long bits = (unsigned long)pointer, tag = bits >> kTagShift;
  const bool tagged = tag != 0 && tag != 0xffff;
  if (!s || !g || s->running != g) return tagged ? (void*)(bits & kAddress) : pointer;
  char* const plain = reinterpret_cast<char*>(tagged ? bits & kAddress : bits);
  if (Init* n = s->init) {
    flush_init(*s);
    // The shadow of the first argument.
    const Context& own = n->contexts[g->current];
    if (own.arguments[0] && size)
      say_used(*s, own.origins[0], g->current, place, "decides an address");
  }
  if (!tagged) {
    // Private memory, and the wrappers' part of the worker's own stack.
    const long from_stack = plain - s->stack;
    if ((plain >= s->own_begin && plain < s->own_end) ||
        (from_stack > -kNear && from_stack < kNear))
      return pointer;
  }
  flush(*s);
  const Access access = Access(kind);
  if (s->out->schedule == METALLIB_SCHEDULE_RANDOM && next_random(*s) % 8 == 0) {
    const unsigned me = g->current;
    g->simdgroups[me / kLanes].ready |= 1u << me % kLanes;
    block(g);
  }
  Worker* w = tls_worker;
  w->place = place && place->line ? place->text : nullptr;
  if (tagged && s->on(METALLIB_CHECK_BOUNDS)) _msl_check(pointer, size, writes(access));
  if (!size ||
      !(s->out->checks & (METALLIB_CHECK_RACE | METALLIB_CHECK_INIT | METALLIB_CHECK_ALIAS)))
    return plain;
  const auto* kernel = static_cast<const metallib_kernel*>(s->out->kernel);
  Target to = {(unsigned long)plain, size, kDevice, kNoArgument, nullptr, "buffer", 0, 0, 0};
  if (tag >= kTagStatic && tag - kTagStatic < w->n_static) {
    const Variable& variable = s->variables[tag - kTagStatic];
    to.space = kShared, to.kind = "threadgroup", to.index = 0xffff;
    to.name = variable.name ? variable.name : "", to.element = variable.element;
    to.offset = plain - w->statics[tag - kTagStatic].address;
  } else if (tagged) {
    const unsigned its = unsigned(tag - 1) / kTagKind;
    to.index = unsigned(tag - 1) % kTagKind;
    if (its > METALLIB_THREADGROUP || to.index >= METALLIB_MAX_BUFFERS) return plain;
    const bool shared = its == METALLIB_THREADGROUP;
    const metallib_argument* a = argument_at(kernel, shared, to.index);
    to.name = a ? a->name : "";
    to.element = a && !(a->flags & METALLIB_ARG_REFERENCE) ? a->pointee_size : 0;
    if (shared) {
      to.space = kShared, to.kind = "threadgroup";
      to.offset = plain - w->threadgroup_base[to.index];
    } else {
      to.argument = to.index;
      to.offset = plain - static_cast<char*>(w->launch->buffers[to.index].address);
    }
  }
  const unsigned me = g->current;
  if (Init* n = s->init) {
    n->is_device = to.space == kDevice, n->is_write = access == kWrite;
    n->is_atomic = is_atomic(access);
    n->last = to, n->last_place = place;
  }
  if (s->on(METALLIB_CHECK_INIT)) {
    if (to.space == kShared)
      look_at_shared(*s, to, access, me, place);
    else if (s->out->n_fresh)
      look_at_fresh(*s, to, access);
  }
  if (writes(access) && to.space == kDevice && s->n_copied && s->on(METALLIB_CHECK_ALIAS))
    look_at_copied(*s, to, access, me, place);
  if (to.space == kShared || s->out->checks & (METALLIB_CHECK_RACE | METALLIB_CHECK_ALIAS))
    look(*s, to, access, me, place);
  return plain;
}
