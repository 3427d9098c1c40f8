// Status: a kernel's error, as a code and a sentence.

#ifndef METAL_OPS_KERNELS_RUNTIME_STATUS_H_
#define METAL_OPS_KERNELS_RUNTIME_STATUS_H_

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

#include "kernels/runtime/arg_shapes.h"

namespace metal_ops {

// TensorFlow's numbers.
enum class Code : int32_t {
  kOk = 0,
  kInvalidArgument = 3,
  kNotFound = 5,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kInternal = 13,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// Joins anything that streams into one sentence.
template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Wrong rank, shape, dtype, attribute or range. The message names the op, the argument, the
// expected value and the actual one.
template <typename... Parts>
Status InvalidArgument(const Parts&... parts) {
  return Status(Code::kInvalidArgument, StrCat(parts...));
}

// Right in itself, but not provided here. Name the replacement.
template <typename... Parts>
Status Unimplemented(const Parts&... parts) {
  return Status(Code::kUnimplemented, StrCat(parts...));
}

// Something that should be installed or built is missing. Name the command.
template <typename... Parts>
Status NotFound(const Parts&... parts) {
  return Status(Code::kNotFound, StrCat(parts...));
}

template <typename... Parts>
Status ResourceExhausted(const Parts&... parts) {
  return Status(Code::kResourceExhausted, StrCat(parts...));
}

template <typename... Parts>
Status Internal(const Parts&... parts) {
  return Status(Code::kInternal, StrCat(parts...));
}

// The errors of argument checks.
inline Status ToStatus(const ArgShapes& shapes) {
  return shapes.ok() ? Status() : InvalidArgument(shapes.error());
}

}  // namespace metal_ops

// On failure leaves a function that itself returns a Status.
#define RETURN_IF_ERROR(...)                                              \
  do {                                                                    \
    if (::metal_ops::Status op_status = (__VA_ARGS__); !op_status.ok()) { \
      return op_status;                                                   \
    }                                                                     \
  } while (0)

#endif  // METAL_OPS_KERNELS_RUNTIME_STATUS_H_
