// Part of log.h: what log_writer.h is on a GPU. The buffer is an argument of kernels that log; every
// thread notes it, the same for all of a threadgroup, in threadgroup memory, where what it calls
// finds it. Texts go along, as the host cannot read the module's.
#pragma once

// Fields of metallib_log_record.
#pragma push_macro("kernel")
#pragma push_macro("thread")
#undef kernel
#undef thread

namespace _msl {
struct LogPlace {
  metallib_log* log;
  const char* kernel;
  unsigned first[3];
};
inline threadgroup LogPlace& log_place() {
  static threadgroup LogPlace place;
  return place;
}
inline void log_in(metallib_log* log, const char* kernel_name, const Grid& grid) {
  threadgroup LogPlace& place = log_place();
  place.log = log;
  place.kernel = kernel_name;
  for (int i = 0; i < 3; ++i) place.first[i] = grid.first[i];
}
inline unsigned text_bytes(const char* text) {
  unsigned n = 0;
  if (!text) return 0;
  while (text[n]) ++n;
  return n + 1;
}
inline char* append(char* to, const char* from, unsigned n) {
  for (unsigned i = 0; i < n; ++i) to[i] = from[i];
  return to + n;
}
}  // namespace _msl

inline __attribute__((noinline)) void _msl_log(unsigned level, const char* subsystem,
                                               const char* category, const char* format,
                                               const void* arguments, unsigned bytes,
                                               unsigned count) {
  metallib_log* const log = _msl::log_place().log;
  if (!log || level < log->level) return;
  const char* const texts[4] = {subsystem, category, format, _msl::log_place().kernel};
  unsigned lengths[4], size = sizeof(metallib_log_record) + bytes;
  for (int i = 0; i < 4; ++i) size += lengths[i] = _msl::text_bytes(texts[i]);
  size = (size + 7) & ~7u;
  ulong used = __atomic_load_n(&log->used, __ATOMIC_RELAXED);
  do {
    if (used + size > log->capacity) {
      __atomic_fetch_add(&log->dropped, 1, __ATOMIC_RELAXED);
      return;
    }
  } while (!__atomic_compare_exchange_n(&log->used, &used, used + size, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
  auto* record = (metallib_log_record*)((char*)(log + 1) + used);
  record->level = ushort(level);
  record->flags = METALLIB_LOG_INLINE;
  // Only whether there is one.
  record->subsystem = subsystem;
  record->category = category;
  record->format = format;
  record->kernel = texts[3];
  record->n_arguments = count;
  char* at = _msl::append((char*)(record + 1), (const char*)arguments, bytes);
  for (int i = 0; i < 4; ++i) at = _msl::append(at, texts[i], lengths[i]);
  const threadgroup unsigned* first = _msl::log_place().first;
  record->thread[0] = (__nvvm_read_ptx_sreg_ctaid_x() + first[0]) * __nvvm_read_ptx_sreg_ntid_x() +
                      __nvvm_read_ptx_sreg_tid_x();
  record->thread[1] = (__nvvm_read_ptx_sreg_ctaid_y() + first[1]) * __nvvm_read_ptx_sreg_ntid_y() +
                      __nvvm_read_ptx_sreg_tid_y();
  record->thread[2] = (__nvvm_read_ptx_sreg_ctaid_z() + first[2]) * __nvvm_read_ptx_sreg_ntid_z() +
                      __nvvm_read_ptx_sreg_tid_z();
  __nvvm_membar_sys();
  *(volatile uint*)&record->size = size;
}

#pragma pop_macro("thread")
#pragma pop_macro("kernel")
