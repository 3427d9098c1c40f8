// The system's log, of which there is none: every log is one that is switched off (OS_LOG_DISABLED), whose calls evaluate
// no argument.
#ifndef HOSTMETAL_OS_LOG_H_
#define HOSTMETAL_OS_LOG_H_

#include <stdbool.h>
#include <stdint.h>

#ifdef __OBJC__
#import <Foundation/NSObject.h>
@protocol OS_os_log <NSObject>
@end
typedef NSObject<OS_os_log>* os_log_t;
#else
typedef struct os_log_s* os_log_t;
#endif

#define OS_LOG_DEFAULT ((os_log_t)0)
#define OS_LOG_DISABLED ((os_log_t)0)
#define OS_LOG_CATEGORY_POINTS_OF_INTEREST "PointsOfInterest"
#define OS_LOG_CATEGORY_DYNAMIC_TRACING "DynamicTracing"

typedef uint8_t os_log_type_t;
enum {
  OS_LOG_TYPE_DEFAULT = 0x00,
  OS_LOG_TYPE_INFO = 0x01,
  OS_LOG_TYPE_DEBUG = 0x02,
  OS_LOG_TYPE_ERROR = 0x10,
  OS_LOG_TYPE_FAULT = 0x11,
};

static inline os_log_t os_log_create(const char* subsystem, const char* category) {
  (void)subsystem, (void)category;
  return OS_LOG_DISABLED;
}
static inline bool os_log_type_enabled(os_log_t log, os_log_type_t type) {
  (void)log, (void)type;
  return false;
}
static inline void hostmetal_unlogged(os_log_t log, const char* format, ...) {
  (void)log, (void)format;
}

#define os_log_with_type(log, type, ...)                                          \
  do {                                                                            \
    if (os_log_type_enabled((log), (type))) hostmetal_unlogged(log, __VA_ARGS__); \
  } while (0)
#define os_log(log, ...) os_log_with_type(log, OS_LOG_TYPE_DEFAULT, __VA_ARGS__)
#define os_log_info(log, ...) os_log_with_type(log, OS_LOG_TYPE_INFO, __VA_ARGS__)
#define os_log_debug(log, ...) os_log_with_type(log, OS_LOG_TYPE_DEBUG, __VA_ARGS__)
#define os_log_error(log, ...) os_log_with_type(log, OS_LOG_TYPE_ERROR, __VA_ARGS__)
#define os_log_fault(log, ...) os_log_with_type(log, OS_LOG_TYPE_FAULT, __VA_ARGS__)

#endif  // HOSTMETAL_OS_LOG_H_
