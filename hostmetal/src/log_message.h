// Text of os_log's messages. Plain C++.
#ifndef HOSTMETAL_SRC_LOG_MESSAGE_H_
#define HOSTMETAL_SRC_LOG_MESSAGE_H_

#include <cstdint>
#include <string>

#include "hostmetal/msl/metallib_abi.h"

namespace hostmetal {

struct LogMessage {
  bool named = false;  // has a subsystem and a category, unlike those of os_log_default
  std::string subsystem, category;
  int level = 0;  // MTLLogLevel
  std::string kernel;
  uint32_t thread[3] = {};
  std::string text;

  // For the standard error: "[kernel] thread (1, 0, 0), error, subsystem:category: text".
  std::string Line() const;
};

LogMessage ReadLog(const metallib_log_record& record);

// MTLLogLevel's names without the prefix, "debug" first; "" for other numbers.
std::string LogLevelName(int level);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_LOG_MESSAGE_H_
