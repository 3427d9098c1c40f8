// Intervals and events for Instruments, which is not there: signposts are switched off, as logs are (<os/log.h>).
#ifndef HOSTMETAL_OS_SIGNPOST_H_
#define HOSTMETAL_OS_SIGNPOST_H_

#include <os/log.h>

typedef uint64_t os_signpost_id_t;
#define OS_SIGNPOST_ID_NULL ((os_signpost_id_t)0)
#define OS_SIGNPOST_ID_INVALID ((os_signpost_id_t)~0ull)
#define OS_SIGNPOST_ID_EXCLUSIVE ((os_signpost_id_t)0xEEEEB0B5B2B2EEEEull)

static inline bool os_signpost_enabled(os_log_t log) {
  (void)log;
  return false;
}
// Null where signposts are switched off.
static inline os_signpost_id_t os_signpost_id_generate(os_log_t log) {
  (void)log;
  return OS_SIGNPOST_ID_NULL;
}
static inline os_signpost_id_t os_signpost_id_make_with_pointer(os_log_t log, const void* pointer) {
  (void)log, (void)pointer;
  return OS_SIGNPOST_ID_NULL;
}
static inline void hostmetal_unsigned(os_log_t log, os_signpost_id_t id, const char* name, ...) {
  (void)log, (void)id, (void)name;
}

#define HOSTMETAL_SIGNPOST(log, ...)                                    \
  do {                                                                  \
    if (os_signpost_enabled(log)) hostmetal_unsigned(log, __VA_ARGS__); \
  } while (0)
#define os_signpost_interval_begin(log, ...) HOSTMETAL_SIGNPOST(log, __VA_ARGS__)
#define os_signpost_interval_end(log, ...) HOSTMETAL_SIGNPOST(log, __VA_ARGS__)
#define os_signpost_event_emit(log, ...) HOSTMETAL_SIGNPOST(log, __VA_ARGS__)

#endif  // HOSTMETAL_OS_SIGNPOST_H_
