// absl/status/status.h with Status::OK(), which TensorFlow had until 2.13 and published ops still
// return.
//
// A static member cannot be added from outside, so one is slipped in behind a declaration of the
// real header. Inline and static: the class is laid out as before.

#ifndef METAL_OPS_COMPAT_ABSL_STATUS_STATUS_H_
#define METAL_OPS_COMPAT_ABSL_STATUS_STATUS_H_

// Whatever else declares an ErasePayload must be read before the macro exists.
#include "absl/functional/function_ref.h"
#include "absl/status/internal/status_internal.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

#define ErasePayload(url) \
  ErasePayload(url);      \
  [[nodiscard]] static inline Status OK() { return Status(); }
#include_next "absl/status/status.h"
#undef ErasePayload

#endif  // METAL_OPS_COMPAT_ABSL_STATUS_STATUS_H_
