// <metal_logging>: os_log. Without -fmetal-enable-logging, _msl_logging is 0 and the calls are left
// out. The runtime makes text of the written arguments (hostmetal/src/log_message.cc).
#pragma once

#include "log_format.h"
#include "runtime.h"
#include "vec.h"

extern "C" {
extern const int _msl_logging __attribute__((visibility("hidden")));
}
#if defined(__NVPTX__)
#include "gpu_log.h"
#else
// The origin of a launch's messages, on this thread.
MSL_HIDDEN void _msl_log_in(const metallib_launch* launch, const char* kernel);
// Writes a message: `arguments` are metallib_log_arguments, each with its numbers.
MSL_HIDDEN void _msl_log(unsigned level, const char* subsystem, const char* category,
                         const char* format, const void* arguments, unsigned bytes, unsigned count);
#endif

namespace metal {

// In the order of MTLLogLevel.
enum log_type { log_type_debug, log_type_info, log_type_default, log_type_error, log_type_fault };

// A format that is no literal has no value while it is compiled: nothing is said of it then.
#define MSL_LOG_CHECK(fault, severity, sentence) \
  __attribute__((diagnose_if(_msl::log_fault<A...>(format) == _msl::fault, sentence, severity)))
#define MSL_LOG_FIT(fault, where)                                                                 \
  MSL_LOG_CHECK(fault, "warning",                                                                 \
                "os_log: the conversion of argument " where                                       \
                " does not fit its type; it is "                                                  \
                "printed as the type says here, and a Mac's compiler takes it as the conversion " \
                "says (of vectors of int, uint and float: %v4hld, %v4hlu, %v4hlf)")
#define MSL_LOG_CHECKS                                                                             \
  MSL_LOG_CHECK(kLogString, "error",                                                               \
                "os_log: Metal has no %s; write the text into the format, or log a number")        \
  MSL_LOG_CHECK(kLogCount, "error", "os_log: Metal has no %n")                                     \
  MSL_LOG_CHECK(kLogObject, "error", "os_log: Metal has no %@ and no %P")                          \
  MSL_LOG_CHECK(                                                                                   \
      kLogUnknown, "error",                                                                        \
      "os_log: a conversion of the format is none of printf's, nor "                               \
      "%v<2, 3 or 4><hh, h, hl or l><d, u, x, f and the like>; %% prints a per cent sign")         \
  MSL_LOG_CHECK(kLogFew, "error", "os_log: the format has more conversions than arguments follow") \
  MSL_LOG_CHECK(kLogMany, "warning",                                                               \
                "os_log: more arguments follow than the format has conversions; the others are "   \
                "not printed")                                                                     \
  MSL_LOG_FIT(kLogFit1, "1")                                                                       \
  MSL_LOG_FIT(kLogFit2, "2")                                                                       \
  MSL_LOG_FIT(kLogFit3, "3")                                                                       \
  MSL_LOG_FIT(kLogFit4, "4")                                                                       \
  MSL_LOG_FIT(kLogFitLater, "5, or of one after it,")

struct os_log {
  constexpr os_log(constant char* subsystem, constant char* category)
      : _subsystem(subsystem), _category(category) {}

  template <class... A>
  void log_with_type(log_type type, constant char* format, A... arguments) const MSL_LOG_CHECKS {
    _write(type, format, arguments...);
  }
#define MSL_LOG(name, type)                                               \
  template <class... A>                                                   \
  void name(constant char* format, A... arguments) const MSL_LOG_CHECKS { \
    _write(type, format, arguments...);                                   \
  }
  MSL_LOG(log_debug, log_type_debug)
  MSL_LOG(log_info, log_type_info)
  MSL_LOG(log, log_type_default)
  MSL_LOG(log_error, log_type_error)
  MSL_LOG(log_fault, log_type_fault)
#undef MSL_LOG

  template <class... A>
  void _write(log_type type, constant char* format, const A&... arguments) const {
    if (_msl_logging) {
      const _msl::LogArguments<A...> packed{arguments...};
      _msl_log(1 + unsigned(type), (const char*)_subsystem, (const char*)_category,
               (const char*)format, &packed, sizeof...(A) ? sizeof packed : 0, sizeof...(A));
    }
  }

  constant char* _subsystem;
  constant char* _category;
};
#undef MSL_LOG_CHECKS
#undef MSL_LOG_FIT
#undef MSL_LOG_CHECK
constant constexpr os_log os_log_default(nullptr, nullptr);

}  // namespace metal
