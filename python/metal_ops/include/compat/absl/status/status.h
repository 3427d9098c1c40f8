// absl/status/status.h with Status::OK(), which TensorFlow had until 2.13 and published ops still
// return.
//
// A static member cannot be added from outside, so the class is given a base that has it, behind
// the word `final`, which the real header has once. The base is empty: the class is laid out as before.

#ifndef METAL_OPS_COMPAT_ABSL_STATUS_STATUS_H_
#define METAL_OPS_COMPAT_ABSL_STATUS_STATUS_H_

// Whatever else has classes that are final must be read before the macro exists.
#include <ostream>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/internal/status_internal.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace metal_ops_compat {

template <typename Status>
struct HasOk {
  [[nodiscard]] static Status OK() { return Status(); }
};

}  // namespace metal_ops_compat

// clang-format off: it takes this for a label.
#define final final : public metal_ops_compat::HasOk<Status>
// clang-format on
#include_next "absl/status/status.h"
#undef final

static_assert(sizeof(absl::Status) == sizeof(void*), "a base that is not empty");

#endif  // METAL_OPS_COMPAT_ABSL_STATUS_STATUS_H_
