// Shaders by name, and their compiled pipelines: made once per (device, library, name, constants),
// found again without a search through strings. Thread-safe.
//
//   Shader("softshrink", dtype)                          // "softshrink_half"
//   Shader("gemm_tiles", dtype).Constant(0, uint32_t{8})  // [[function_constant(0)]]

#ifndef METAL_OPS_KERNELS_RUNTIME_SHADER_H_
#define METAL_OPS_KERNELS_RUNTIME_SHADER_H_

#import <Metal/Metal.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/runtime/dtype.h"
#include "kernels/runtime/profile.h"
#include "kernels/runtime/status.h"

namespace metal_ops {

// A metallib. Two files of the same content are one library; a file that is written anew is
// another one when it is opened again. Stays open for the life of the process.
struct ShaderLibrary;
Status OpenLibrary(const std::string& path, const ShaderLibrary** library);

// A library that is not in a file: the bytes of a metallib, or the text of shaders, which the
// platform's compiler makes one of when it is first used. One text is one library under each
// `fast_math`, which compiled bytes do not depend on.
Status OpenCode(std::string code, bool fast_math, const ShaderLibrary** library);

// The entry points of a library, compiled if need be.
Status ShaderNames(id<MTLDevice> device, const ShaderLibrary* library,
                   std::vector<std::string>* names);

// A shader's entry point: a name, values of function constants, a library. Lies on the stack whole.
class Shader {
 public:
  Shader(const char* name) { Append(name); }
  Shader(const std::string& name) { Append(name); }

  // Joins its parts by '_'. Dtypes are called as in shaders, numbers are written out, empty parts
  // left out: Shader("hash_encode", DType::kHalf, 3) is "hash_encode_half_3".
  template <typename... Parts, typename = std::enable_if_t<(sizeof...(Parts) > 0)>>
  Shader(std::string_view stem, const Parts&... parts) {
    Append(stem);
    (Join(parts), ...);
  }

  // The value of the shader's [[function_constant(index)]].
  Shader& Constant(int index, bool value) { return Constant(index, MTLDataTypeBool, value); }
  Shader& Constant(int index, int32_t value) {
    return Constant(index, MTLDataTypeInt, static_cast<uint32_t>(value));
  }
  Shader& Constant(int index, uint32_t value) { return Constant(index, MTLDataTypeUInt, value); }
  Shader& Constant(int index, float value);

  // Without it: <stem>.metallib beside this shared object if there is one, else metal_ops.metallib.
  Shader& In(const ShaderLibrary* library) {
    library_ = library;
    return *this;
  }

  std::string_view name() const { return {text_, size_}; }

  // For the cache alone.
  struct Value {
    int index;
    MTLDataType type;
    uint32_t bits;
    bool operator==(const Value& other) const {
      return index == other.index && type == other.type && bits == other.bits;
    }
  };
  static constexpr size_t kMaxName = 112;
  static constexpr size_t kMaxConstants = 8;
  const ShaderLibrary* library() const { return library_; }
  const Value* constants() const { return constants_; }
  size_t n_constants() const { return n_constants_; }
  uint64_t hash() const { return hash_; }
  bool fits() const { return fits_; }

 private:
  void Append(std::string_view text);
  void Mix(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3u; }
  Shader& Constant(int index, MTLDataType type, uint32_t bits);

  void Join(std::string_view text) {
    if (text.empty()) return;
    Append("_");
    Append(text);
  }
  void Join(const char* text) { Join(std::string_view(text)); }
  // An element type, or a number. Adapters have names of their own for the types.
  template <typename T, typename = std::enable_if_t<std::is_enum_v<T> || std::is_integral_v<T>>>
  void Join(T part) {
    if constexpr (std::is_enum_v<T>) {
      const char* type = ShaderType(static_cast<DType>(part));
      Join(std::string_view(type == nullptr ? "unknown" : type));
    } else {
      JoinNumber(static_cast<uint64_t>(part));
    }
  }
  void JoinNumber(uint64_t rest) {
    char digits[24];
    size_t at = sizeof(digits);
    do {
      digits[--at] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest != 0);
    Join(std::string_view(digits + at, sizeof(digits) - at));
  }

  uint64_t hash_ = 0xcbf29ce484222325u;
  const ShaderLibrary* library_ = nullptr;
  size_t size_ = 0;
  size_t n_constants_ = 0;
  bool fits_ = true;
  char text_[kMaxName];
  Value constants_[kMaxConstants];
};

// One argument as the compiled shader has it.
struct Binding {
  std::string name;
  NSUInteger index;    // [[buffer(index)]]
  NSUInteger pointee;  // bytes of one element, or of the struct
  MTLDataType type;    // of one element
  std::string layout;  // of one element: DescribeLayout
  bool is_scalar;      // it is a number
  bool is_buffer;      // else threadgroup memory, a texture, a sampler
  bool is_written;
  bool is_threadgroup;
};

// MSL's name of a scalar type, "" for structs and all others.
const char* ScalarName(MTLDataType type);

// A compiled shader, with the facts that encoding it needs.
struct Pipeline {
  id<MTLComputePipelineState> state = nil;
  id<MTLDevice> device = nil;
  std::string name;
  std::vector<Binding> bindings;  // by index
  NSUInteger simd_width = 1;
  bool shares = false;  // its threadgroups have memory, or a size of their own
  NSUInteger max_threads = 1;
  MTLSize max_sides = {1, 1, 1};
  mutable std::atomic<int> last_line{0};  // of the source that launched it last
  NumberedName numbered;                  // by the profiler
};

// The pipeline stays valid for the life of the process. Compiles it the first time, while other
// threads get theirs.
Status GetPipeline(id<MTLDevice> device, const Shader& shader, const Pipeline** pipeline);

// How many pipelines were built so far; the tests ask that a second call builds none.
int64_t PipelinesBuilt();

// Remembers a place in the sources that launches the shader, for the test that visits every one.
void Visit(const Pipeline& pipeline, const char* file, int line);

// Those of `names` that a misspelt one may stand for, nearest first: "'a', 'b'"; or "".
std::string NearNames(const std::string& name, const std::vector<std::string>& names);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_SHADER_H_
