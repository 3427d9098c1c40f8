// HOSTMETAL_CHECK=init: the shadow of values, a bit set for each bit that was never written, as LLVM's
// MemorySanitizer asks for it by functions (-fsanitize=kernel-memory). The stacks of threads and threadgroup memory
// have shadows of their own; in buffers, the bytes of metallib_fresh count. A part of library.cc.
#pragma once

#include "checks_state.h"

extern "C" void* mmap(void*, unsigned long, int, int, int, long);
extern "C" int munmap(void*, unsigned long);
extern "C" void* memmove(void*, const void*, unsigned long);

extern "C" {
// Variables without an initialiser begin as loads from here.
__attribute__((visibility("hidden"))) char _msl_never_written[4096];
}

namespace checks {

// As the pass has it: shadows of arguments and of the result, and more.
struct Context {
  unsigned long arguments[100], result[100], variadic[100], variadic_origin[100], overflow;
  unsigned origins[200], result_origin, used;
};

struct Shadows {
  void *at, *origin;
};

constexpr unsigned kMaxOrigins = 1u << 12;
constexpr unsigned long kScratch = 1ul << 16;
constexpr unsigned long kAll = ~0ul;

// Where a value without a write was read, or its variable declared.
struct Origin {
  Place* place;
  bool variable;
  Target target;  // of a read
  unsigned group, thread;
};

// The state of a launch, in memory of its own.
struct Init {
  unsigned long bytes;  // of this and the shadows behind it
  unsigned long own_bytes;
  char *own, *own_origins;  // of the group's scratch
  unsigned n_origins;
  Origin origins[kMaxOrigins];
  Context contexts[METALLIB_MAX_THREADS + 1];
  unsigned long static_at[kMaxStatic];  // 1 + where a variable of threadgroup memory has its shadow
  unsigned long static_used;
  char statics[METALLIB_MAX_THREADGROUP_MEMORY], static_origins[METALLIB_MAX_THREADGROUP_MEMORY];
  // A store to a buffer, whose shadow is looked at afterwards.
  bool stores;
  Target to;
  Place* place;
  unsigned me;
  char stored[kScratch], stored_origins[kScratch];
  char loaded[kScratch], loaded_origins[kScratch];
  // The last access.
  bool is_device, is_write, is_atomic;
  Target last;
  Place* last_place;
};

__thread Context tls_context;  // of launches without this check
char zeros[kScratch], nothing[kScratch], ones[kScratch];
__thread unsigned tls_never_origin[kScratch / 64];

bool poisoned(const char* at, unsigned long size) {
  for (unsigned long i = 0; i < size; ++i)
    if (at[i]) return true;
  return false;
}

unsigned origin_of(Init& n, const Origin& o) {
  for (unsigned i = 1; i < n.n_origins; ++i)
    if (n.origins[i].place == o.place && n.origins[i].variable == o.variable) return i;
  if (n.n_origins == kMaxOrigins) return 0;
  n.origins[n.n_origins] = o;
  return n.n_origins++;
}

void fill_origins(char* at, unsigned long size, unsigned origin) {
  auto* words = reinterpret_cast<unsigned*>((unsigned long)at & ~3ul);
  auto* end = reinterpret_cast<unsigned*>(at + size);
  for (; words < end; ++words) *words = origin;
}

void add_origin(State& s, Text& t, unsigned origin, unsigned me) {
  const Init& n = *s.init;
  if (!origin || origin >= n.n_origins) return t.add("a value that was never written");
  const Origin& o = n.origins[origin];
  if (o.variable) {
    t.add("the variable without a value");
    add_place(t, o.place);
    add_thread(t, s, s.group, me, true);
    return;
  }
  t.add("read");
  add_target(t, o.target);
  add_thread(t, s, o.group, o.thread, true);
  add_place(t, o.place);
  t.add(o.target.space == kShared ? ", which this threadgroup has not written,"
                                  : ", a private buffer in which nothing has been written there,");
}

void say_used(State& s, unsigned origin, unsigned me, Place* place, const char* use) {
  const Init& n = *s.init;
  const Origin* o = origin && origin < n.n_origins ? &n.origins[origin] : nullptr;
  const unsigned long key = key_of(METALLIB_CHECK_INIT, o ? o->place : place, nullptr);
  if (was_said(s, key)) return;
  char text[METALLIB_REPORT_BYTES];
  Text t = begin(s, text, "init");
  add_origin(s, t, origin, me);
  t.add(" %s", use);
  add_place(t, place);
  if (!o || o->variable)
    t.add("; give it a value first");
  else if (o->target.space == kShared)
    t.add("; store a value first, and call threadgroup_barrier(mem_flags::mem_threadgroup)");
  else
    t.add("; fill it first");
  report(s, key, text);
}

// Looks at what the last store to a buffer has stored. Vectors of three have a fourth element in memory that is none.
void flush_init(State& s) {
  Init* n = s.init;
  if (!n || !n->stores) return;
  n->stores = false;
  const unsigned long size = n->to.size;
  const bool padded = size == 4 || size == 8 || size == 16 || size == 32;
  if (!poisoned(n->stored, size)) return;
  if (padded && !poisoned(n->stored, size / 4 * 3)) return;
  unsigned long first = 0;
  while (!n->stored[first]) ++first;
  const unsigned origin = reinterpret_cast<unsigned*>(n->stored_origins)[first / 4];
  say_used(s, origin, n->me, n->place, "is stored to a buffer");
}

void begin_init(State& s, unsigned long own_bytes) {
  if (s.init) munmap(s.init, s.init->bytes), s.init = nullptr;
  if (!s.on(METALLIB_CHECK_INIT)) return;
  __builtin_memset(ones, 0xff, sizeof ones);
  const unsigned long bytes = align(sizeof(Init), 4096) + 2 * align(own_bytes, 4096);
  // PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
  void* at = mmap(nullptr, bytes, 3, 0x2 | 0x20 | 0x4000, -1, 0);
  if (at == reinterpret_cast<void*>(kAll)) return;
  s.init = static_cast<Init*>(at);
  s.init->bytes = bytes;
  s.init->own_bytes = own_bytes;
  s.init->own = static_cast<char*>(at) + align(sizeof(Init), 4096);
  s.init->own_origins = s.init->own + align(own_bytes, 4096);
  s.init->n_origins = 1;
}

void end_init(State& s) {
  if (s.init) munmap(s.init, s.init->bytes);
  s.init = nullptr;
}

// Threadgroup memory is as if nothing had been written; no thread has left a shadow of arguments.
void begin_init_group(State& s) {
  Init* n = s.init;
  if (!n) return;
  __builtin_memset(n->statics, 0xff, n->static_used);
  __builtin_memset(n->static_origins, 0, n->static_used);
  char* const begin = s.own_begin + align(sizeof(Group), 64);
  const unsigned long size = s.running->stacks - begin, at = begin - s.own_begin;
  __builtin_memset(n->own + at, 0xff, size);
  __builtin_memset(n->own_origins + at, 0, size);
  for (Context& c : n->contexts)
    if (c.used) __builtin_memset(&c, 0, sizeof c);
}

bool is_never(const char* address) {
  return address >= _msl_never_written && address < _msl_never_written + sizeof _msl_never_written;
}

// The shadow of some bytes; {nullptr, nullptr} where they have none.
Shadows own_shadow(State& s, char* address, unsigned long size) {
  Init& n = *s.init;
  const unsigned long at = address - s.own_begin;
  if (at < n.own_bytes && size <= n.own_bytes - at)
    return {n.own + at, n.own_origins + (at & ~3ul)};
  const Worker* w = tls_worker;
  for (unsigned i = 0; w && i < w->n_static; ++i) {
    const Static& variable = w->statics[i];
    const unsigned long offset = address - variable.address;
    if (offset >= variable.size || size > variable.size - offset) continue;
    if (!n.static_at[i]) {
      const unsigned long begin = align(n.static_used, 16);
      if (begin + variable.size > sizeof n.statics) break;
      n.static_at[i] = begin + 1;
      n.static_used = begin + variable.size;
      __builtin_memset(n.statics + begin, 0xff, variable.size);
    }
    const unsigned long place = n.static_at[i] - 1 + offset;
    return {n.statics + place, n.static_origins + (place & ~3ul)};
  }
  return {nullptr, nullptr};
}

Shadows to_load(char* address, unsigned long size) {
  State* s = tls_state;
  if (!s || !s->init || size > kScratch) return {zeros, zeros};
  Init& n = *s->init;
  flush_init(*s);
  const bool known = n.last.address == (unsigned long)address && !n.is_write;
  const Shadows own = own_shadow(*s, address, size);
  if (own.at) {
    auto* origin = static_cast<unsigned*>(own.origin);
    if (known && n.last.space == kShared && poisoned(static_cast<char*>(own.at), size) && !*origin)
      fill_origins(static_cast<char*>(own.origin), size,
                   origin_of(n, {n.last_place, false, n.last, s->group, s->running->current}));
    return own;
  }
  if (is_never(address)) {
    // The optimiser has made one load of it and of another.
    const unsigned origin = known ? origin_of(n, {n.last_place, true, {}, 0, 0}) : 0;
    fill_origins(n.loaded_origins, size, origin);
    return {ones, n.loaded_origins};
  }
  // Atomic counters begin at the zeros that Metal has new buffers hold.
  for (unsigned i = 0; i < s->out->n_fresh && !(known && n.is_atomic); ++i) {
    const metallib_fresh& fresh = s->out->fresh[i];
    const unsigned long at = address - fresh.address;
    if (at >= fresh.length) continue;
    bool all = true;
    for (unsigned long k = 0; k < size; ++k) {
      const bool was = at + k >= fresh.length || (fresh.written[(at + k) / 8] >> (at + k) % 8 & 1);
      n.loaded[k] = was ? 0 : char(0xff);
      all = all && was;
    }
    if (all) break;
    fill_origins(
        n.loaded_origins, size,
        known ? origin_of(n, {n.last_place, false, n.last, s->group, s->running->current}) : 0);
    return {n.loaded, n.loaded_origins};
  }
  return {zeros, zeros};
}

Shadows to_store(char* address, unsigned long size) {
  State* s = tls_state;
  if (!s || !s->init || size > kScratch) return {nothing, nothing};
  Init& n = *s->init;
  flush_init(*s);
  const Shadows own = own_shadow(*s, address, size);
  if (own.at) return own;
  if (!n.is_device || !n.is_write || n.last.address != (unsigned long)address)
    return {nothing, nothing};
  n.stores = true;
  n.to = n.last, n.to.size = size;
  n.place = n.last_place, n.me = s->running->current;
  __builtin_memset(n.stored, 0, size);
  return {n.stored, n.stored_origins};
}

// memcpy: shadows follow the bytes.
void copy_shadow(char* to, char* from, unsigned long size) {
  State* s = tls_state;
  if (!s || !s->init || !size || size > kScratch) return;
  Init& n = *s->init;
  flush_init(*s);
  const bool to_device = n.is_device && n.is_write && n.last.address == (unsigned long)to;
  const Shadows source = to_load(from, size);
  const Shadows own = own_shadow(*s, to, size);
  if (own.at) {
    memmove(own.at, source.at, size);
    memmove(own.origin, source.origin, size & ~3ul);
    return;
  }
  if (!to_device) return;
  // A struct has bytes between its fields: it is one that was never written if all of it was not.
  for (unsigned long i = 0; i < size; ++i)
    if (!static_cast<char*>(source.at)[i]) return;
  say_used(*s, *static_cast<unsigned*>(source.origin), s->running->current, n.last_place,
           "is stored to a buffer");
}

}  // namespace checks

// ---- what compiled kernels call

#define MSL_SHADOW(size)                                                     \
  MSL_HIDDEN checks::Shadows __msan_metadata_ptr_for_load_##size(char* p) {  \
    return checks::to_load(p, size);                                         \
  }                                                                          \
  MSL_HIDDEN checks::Shadows __msan_metadata_ptr_for_store_##size(char* p) { \
    return checks::to_store(p, size);                                        \
  }
MSL_SHADOW(1)
MSL_SHADOW(2)
MSL_SHADOW(4)
MSL_SHADOW(8)
#undef MSL_SHADOW

    MSL_HIDDEN checks::Shadows __msan_metadata_ptr_for_load_n(char* p, unsigned long size) {
  return checks::to_load(p, size);
}
MSL_HIDDEN checks::Shadows __msan_metadata_ptr_for_store_n(char* p, unsigned long size) {
  return checks::to_store(p, size);
}

MSL_HIDDEN checks::Context* __msan_get_context_state() {
  checks::State* s = checks::tls_state;
  if (!s || !s->init) return &checks::tls_context;
  checks::Context& c = s->init->contexts[s->running->current];
  c.used = 1;
  return &c;
}

MSL_HIDDEN unsigned __msan_chain_origin(unsigned origin) { return origin; }

MSL_HIDDEN void* __msan_memcpy(char* to, char* from, unsigned long size) {
  checks::copy_shadow(to, from, size);
  return memmove(to, from, size);
}
MSL_HIDDEN void* __msan_memmove(char* to, char* from, unsigned long size) {
  checks::copy_shadow(to, from, size);
  return memmove(to, from, size);
}
MSL_HIDDEN void* __msan_memset(char* to, int value, unsigned long size) {
  checks::State* s = checks::tls_state;
  if (s && s->init) {
    const checks::Shadows own = checks::own_shadow(*s, to, size);
    if (own.at) __builtin_memset(own.at, 0, size);
  }
  return __builtin_memset(to, value, size);
}

// A variable of a thread, which begins here.
MSL_HIDDEN void _msl_init_variable(char* p, unsigned long size, checks::Place* place) {
  checks::State* s = checks::tls_state;
  if (!s || !s->init) return;
  checks::Init& n = *s->init;
  const unsigned long at = p - s->own_begin;
  if (at >= n.own_bytes || size > n.own_bytes - at) return;
  __builtin_memset(n.own + at, 0xff, size);
  const unsigned origin = checks::origin_of(n, {place, true, {}, s->group, s->running->current});
  checks::fill_origins(n.own_origins + at, size, origin);
}

MSL_HIDDEN checks::Shadows _msl_init_never(checks::Place* place) {
  using namespace checks;
  State* s = tls_state;
  if (!s || !s->init) return {zeros, zeros};
  flush_init(*s);
  const unsigned origin = origin_of(*s->init, {place, true, {}, s->group, s->running->current});
  fill_origins(reinterpret_cast<char*>(tls_never_origin), 64, origin);
  return {ones, tls_never_origin};
}

// The library's functions write to a thread's variable.
MSL_HIDDEN void _msl_init_written(char* p, unsigned long size) {
  checks::State* s = checks::tls_state;
  if (!s || !s->init) return;
  const checks::Shadows own = checks::own_shadow(*s, p, size);
  if (own.at) __builtin_memset(own.at, 0, size);
}
MSL_HIDDEN void __msan_instrument_asm_store(char* p, unsigned long size) {
  _msl_init_written(p, size);
}

MSL_HIDDEN void _msl_init_used(unsigned origin, unsigned branch, checks::Place* place) {
  checks::State* s = checks::tls_state;
  if (!s || !s->init) return;
  checks::flush_init(*s);
  checks::say_used(*s, origin, s->running->current, place,
                   branch ? "decides a branch" : "decides an address");
}
