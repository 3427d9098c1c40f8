// visible_function_table: functions that a kernel calls by their number.
#pragma once

#include "traits.h"

namespace metal {

template <class F>
class visible_function_table;

template <class R, class... A>
class visible_function_table<R(A...)> {
 public:
  typedef R (*function)(A...);
  visible_function_table() : functions(nullptr), count(0) {}
  visible_function_table(const void* entries, ulong bytes)
      : functions((const function*)entries), count(uint(bytes / sizeof(function))) {}
  // A missing entry faults when it is called, as an empty entry does.
  function operator[](size_t i) const { return i < count ? functions[i] : nullptr; }
  uint size() const { return count; }
  bool empty() const { return count == 0; }

 private:
  const function* functions;
  uint count;
};

template <class F>
inline bool is_null_visible_function_table(visible_function_table<F> table) {
  return table.empty();
}

}  // namespace metal
