// Which of two ways a kernel goes: see choice.h.

#include "kernels/runtime/choice.h"

#include <cstdlib>
#include <cstring>

namespace metal_ops {

Status AskedFor(const char* variable, const char* one, const char* other, bool* first) {
  const char* asked = std::getenv(variable);
  if (asked == nullptr || *asked == '\0') return Status();
  *first = std::strcmp(asked, one) == 0;
  if (*first || std::strcmp(asked, other) == 0) return Status();
  return InvalidArgument(variable, " must be '", one, "' or '", other, "', got '", asked,
                         "'; unset it to let the device decide");
}

}  // namespace metal_ops
