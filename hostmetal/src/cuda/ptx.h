// Text edits of PTX: one kernel out of a file of many, with its function constants as numbers.
#ifndef HOSTMETAL_SRC_CUDA_PTX_H_
#define HOSTMETAL_SRC_CUDA_PTX_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hostmetal/msl/metallib_abi.h"

namespace hostmetal {
namespace cuda {

// The entry point of a kernel: as python/metal_ops/metal/gpu.py writes it.
std::string EntryName(std::string_view kernel);

class PtxFile {
 public:
  // `text` must outlive the object.
  explicit PtxFile(std::string_view text);

  bool Has(const std::string& entry) const { return by_name_.count(entry) != 0; }

  // A file with `entry` and the functions it uses. The JIT compiles just that, and code that a
  // function constant switches off is gone before it counts registers.
  std::string Extract(const std::string& entry, const metallib_function_constant* constants,
                      const metallib_constant_value* values, size_t count) const;

 private:
  struct Item {
    std::string_view text;
    std::string_view name;
    std::vector<std::string_view> uses;  // other items' names
  };
  std::string_view header_;
  std::vector<Item> items_;
  std::map<std::string_view, std::vector<size_t>, std::less<>> by_name_;
};

}  // namespace cuda
}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CUDA_PTX_H_
