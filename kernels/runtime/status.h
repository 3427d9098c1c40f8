// Status: what a kernel did wrong, as a TF_Code and a sentence. Part of the C++ face over the TF
// kernel C API.

#ifndef METAL_OPS_KERNELS_RUNTIME_STATUS_H_
#define METAL_OPS_KERNELS_RUNTIME_STATUS_H_

#include <sstream>
#include <string>
#include <utility>

#include "tensorflow/c/tf_status.h"

namespace metal_ops {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(TF_Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == TF_OK; }
  TF_Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  TF_Code code_ = TF_OK;
  std::string message_;
};

// Joins anything that streams into one sentence.
template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Wrong rank, shape, dtype, attribute or range. Name the op, the argument, what was expected and
// what came.
template <typename... Parts>
Status InvalidArgument(const Parts&... parts) {
  return Status(TF_INVALID_ARGUMENT, StrCat(parts...));
}

// Right in itself, but not provided here. Name what to use instead.
template <typename... Parts>
Status Unimplemented(const Parts&... parts) {
  return Status(TF_UNIMPLEMENTED, StrCat(parts...));
}

// Something that should be installed or built is missing. Name the command.
template <typename... Parts>
Status NotFound(const Parts&... parts) {
  return Status(TF_NOT_FOUND, StrCat(parts...));
}

template <typename... Parts>
Status ResourceExhausted(const Parts&... parts) {
  return Status(TF_RESOURCE_EXHAUSTED, StrCat(parts...));
}

template <typename... Parts>
Status Internal(const Parts&... parts) {
  return Status(TF_INTERNAL, StrCat(parts...));
}

// Owns the TF_Status that a C API call wants.
class CStatus {
 public:
  CStatus() : status_(TF_NewStatus()) {}
  ~CStatus() { TF_DeleteStatus(status_); }
  CStatus(const CStatus&) = delete;
  CStatus& operator=(const CStatus&) = delete;

  operator TF_Status*() { return status_; }
  bool ok() const { return TF_GetCode(status_) == TF_OK; }
  Status Get() const { return ok() ? Status() : Status(TF_GetCode(status_), TF_Message(status_)); }
  void Set(const Status& status) { TF_SetStatus(status_, status.code(), status.message().c_str()); }

 private:
  TF_Status* status_;
};

}  // namespace metal_ops

// Stock TensorFlow's idiom: on failure report to `ctx` and leave the (void) function.
#define OP_REQUIRES(ctx, condition, ...) \
  do {                                   \
    if (!(condition)) {                  \
      (ctx)->Fail(__VA_ARGS__);          \
      return;                            \
    }                                    \
  } while (0)

#define OP_REQUIRES_OK(ctx, ...)                                          \
  do {                                                                    \
    if (::metal_ops::Status op_status = (__VA_ARGS__); !op_status.ok()) { \
      (ctx)->Fail(op_status);                                             \
      return;                                                             \
    }                                                                     \
  } while (0)

// The same inside a function that itself returns a Status.
#define RETURN_IF_ERROR(...)                                              \
  do {                                                                    \
    if (::metal_ops::Status op_status = (__VA_ARGS__); !op_status.ok()) { \
      return op_status;                                                   \
    }                                                                     \
  } while (0)

#endif  // METAL_OPS_KERNELS_RUNTIME_STATUS_H_
