// tensorflow/tsl/c/tsl_status_helper.h of TensorFlow 2.12 and 2.13: moved since, and the setter got
// another name.

#ifndef METAL_OPS_COMPAT_TENSORFLOW_TSL_C_TSL_STATUS_HELPER_H_
#define METAL_OPS_COMPAT_TENSORFLOW_TSL_C_TSL_STATUS_HELPER_H_

#include "tensorflow/c/tf_status_helper.h"
#include "xla/tsl/c/tsl_status_helper.h"

namespace tsl {

inline void Set_TSL_Status_from_Status(TSL_Status* to, const absl::Status& from) {
  Set_TF_Status_from_Status(to, from);
}

}  // namespace tsl

#endif  // METAL_OPS_COMPAT_TENSORFLOW_TSL_C_TSL_STATUS_HELPER_H_
