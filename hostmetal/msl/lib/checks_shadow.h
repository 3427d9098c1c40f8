// HOSTMETAL_CHECK's memory of accesses: for every word, or byte where kernels use bytes, its last write,
// two reads and two atomic accesses by different threads, as FastTrack and race detectors of GPUs have it.
// It lies in metallib_checks.shadow, is bounded by that, and forgets all when it is full.
#pragma once

#include "../metallib_abi.h"

namespace checks {

// Where a shader accesses memory or meets other threads; the compiler makes one of each call.
struct Place {
  const char* text;  // "file:line"
  unsigned line, column;
  unsigned calls;   // a digest of the calls that led there
  unsigned number;  // among State::places, 0 before the first use
};

enum Access : unsigned { kRead, kWrite, kUpdate, kAtomicRead, kAtomicWrite };
inline bool writes(Access a) { return a != kRead && a != kAtomicRead; }
inline bool is_atomic(Access a) { return a >= kUpdate; }

constexpr unsigned kNoArgument = 63;

// One access. `group`: 1 + the threadgroup's number among those that may overlap, 0 for no access. `time` grows with
// every barrier of the threadgroup.
struct Record {
  unsigned group, time, place, who;
  unsigned thread() const { return who & 1023; }
  Access access() const { return Access(who >> 10 & 7); }
  unsigned argument() const { return who >> 13 & 63; }
  static unsigned pack(unsigned thread, Access access, unsigned argument) {
    return thread | access << 10 | argument << 13;
  }
};

struct Cell {
  Record write, reads[2], atomics[2];
  unsigned written;  // the threadgroup that wrote last, in any way
};

constexpr unsigned kPageBits = 12;
constexpr unsigned long kPage = 1ul << kPageBits;
constexpr unsigned long kSlot = kPage / 4 * sizeof(Cell);  // of a page's words
constexpr unsigned kBuckets = 1u << 16;

// The cells of a page of memory; `shift` 2: a cell is a word, 0: a byte.
struct Page {
  unsigned long number;
  unsigned generation, slot, shift, unused;
};

struct Shadow {
  unsigned long layout;             // kLayout once it is set up
  unsigned generation;              // of the records
  unsigned used, touched, n_slots;  // slots: taken, ever taken, there
  unsigned n_pages;
  Page pages[kBuckets];

  static constexpr unsigned long kLayout = 0x6d736c0000000000 | sizeof(Cell);

  char* slots() {
    return reinterpret_cast<char*>(this) + (sizeof(Shadow) + kPage - 1) / kPage * kPage;
  }
  Cell* cells(const Page& page) { return reinterpret_cast<Cell*>(slots() + page.slot * kSlot); }

  void forget() {
    ++generation;
    used = n_pages = 0;
  }

  void set_up(unsigned long bytes) {
    if (layout == kLayout) return;
    layout = kLayout;
    generation = 1;
    used = touched = n_pages = 0;
    n_slots = unsigned((bytes - sizeof(Shadow) - 2 * kPage) / kSlot);
  }

  unsigned take(unsigned count) {
    if (used + count > n_slots || n_pages > kBuckets / 2) forget();
    const unsigned first = used;
    used += count;
    // Untouched records are zero.
    const unsigned old = first >= touched ? 0 : (used < touched ? used : touched) - first;
    __builtin_memset(slots() + first * kSlot, 0, old * kSlot);
    if (used > touched) touched = used;
    return first;
  }

  // The page of an address, with cells no coarser than `shift`.
  Page& page_of(unsigned long address, unsigned shift) {
    const unsigned long number = address >> kPageBits;
    while (true) {
      unsigned at = unsigned(number * 0x9e3779b97f4a7c15ul >> 48) % kBuckets;
      while (pages[at].generation == generation && pages[at].number != number)
        at = (at + 1) % kBuckets;
      Page& page = pages[at];
      const bool known = page.generation == generation;
      if (known && page.shift <= shift) return page;
      const unsigned before = generation;
      const unsigned slot = take(1u << (2 - shift));
      if (before != generation) continue;  // forgotten: `at` may be another page's
      if (known) {
        const Cell* from = cells(page);
        Cell* to = reinterpret_cast<Cell*>(slots() + slot * kSlot);
        const unsigned more = 1u << (page.shift - shift);
        for (unsigned i = 0; i < kPage >> page.shift; ++i)
          for (unsigned k = 0; k < more; ++k) to[i * more + k] = from[i];
      } else {
        ++n_pages;
      }
      page = {number, generation, slot, shift, 0};
      return page;
    }
  }

  // Calls f(cell) for each cell of some bytes, until it returns false.
  template <class F>
  void each(unsigned long address, unsigned long size, F f) {
    const unsigned shift = (address | size) & 1 ? 0 : (address | size) & 2 ? 1 : 2;
    const unsigned long end = address + size;
    while (address < end) {
      unsigned long page_end = (address | (kPage - 1)) + 1;
      if (page_end > end) page_end = end;
      const Page& page = page_of(address, shift);
      Cell* const all = cells(page);
      const unsigned last = unsigned((page_end - 1) % kPage >> page.shift);
      for (unsigned i = unsigned(address % kPage >> page.shift); i <= last; ++i)
        if (!f(all[i])) return;
      address = page_end;
    }
  }
};

}  // namespace checks
