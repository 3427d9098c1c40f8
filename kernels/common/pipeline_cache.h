// Compiled compute pipelines, made once a (device, library, function, function constants).
// Thread-safe.

#ifndef METAL_OPS_KERNELS_COMMON_PIPELINE_CACHE_H_
#define METAL_OPS_KERNELS_COMMON_PIPELINE_CACHE_H_

#import <Metal/Metal.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/status.h"

namespace metal_ops {

// Values for a shader's [[function_constant(i)]] declarations.
class Constants {
 public:
  Constants& Bool(int index, bool value);
  Constants& Int(int index, int32_t value);
  Constants& UInt(int index, uint32_t value);
  Constants& Float(int index, float value);

  bool empty() const { return entries_.empty(); }
  std::string Key() const;
  MTLFunctionConstantValues* Values() const;  // autoreleased

 private:
  struct Entry {
    int index;
    MTLDataType type;
    uint32_t bits;
  };
  std::vector<Entry> entries_;
};

// A shader's entry point. `library` is a metallib's path; empty means the one beside this shared
// object: <stem>.metallib if there is one, else metal_ops.metallib.
struct Function {
  Function(std::string name, Constants constants = {}, std::string library = {})
      : name(std::move(name)), constants(std::move(constants)), library(std::move(library)) {}
  Function(const char* name) : name(name) {}

  std::string name;
  Constants constants;
  std::string library;
};

// The pipeline stays valid for the life of the process.
Status GetPipeline(id<MTLDevice> device, const Function& function,
                   id<MTLComputePipelineState>* pipeline);

// How many pipelines were built so far; the tests ask that a second call builds none.
int64_t PipelinesBuilt();

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_COMMON_PIPELINE_CACHE_H_
