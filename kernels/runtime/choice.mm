// The choice between variants of a kernel: see choice.h.

#include "kernels/runtime/choice.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/runtime/platform.h"

namespace metal_ops {

Status AskedFor(const char* variable, std::initializer_list<const char*> ways, int* way) {
  const char* asked = std::getenv(variable);
  if (asked == nullptr || *asked == '\0') return Status();
  std::string names;
  for (auto it = ways.begin(); it != ways.end(); ++it) {
    if (std::strcmp(asked, *it) == 0) {
      *way = static_cast<int>(it - ways.begin());
      return Status();
    }
    if (it != ways.begin()) names += it + 1 == ways.end() ? " or " : ", ";
    names += std::string("'") + *it + "'";
  }
  return InvalidArgument(variable, " must be ", names, ", got '", asked,
                         "'; unset it to let the device decide");
}

Status AskedFor(const char* variable, const char* one, const char* other, bool* first) {
  int way = *first ? 0 : 1;
  RETURN_IF_ERROR(AskedFor(variable, {one, other}, &way));
  *first = way == 0;
  return Status();
}

Status ChooseRowLanes(int* lanes) {
  bool group = ThreadgroupsRunAtOnce();
  RETURN_IF_ERROR(AskedFor("METAL_OPS_ROW_NORM", "groups", "threads", &group));
  *lanes = group ? 32 : 1;
  return Status();
}

bool SimdgroupsMultiply(DType type) {
  return ThreadgroupsRunAtOnce() && !(IsDiscrete() && type == DType::kFloat);
}

}  // namespace metal_ops
