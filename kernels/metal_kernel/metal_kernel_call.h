// One call of a shader that is text: binds its arguments, and launches it.

#ifndef METAL_OPS_KERNELS_METAL_KERNEL_METAL_KERNEL_CALL_H_
#define METAL_OPS_KERNELS_METAL_KERNEL_METAL_KERNEL_CALL_H_

#include <forward_list>
#include <string>
#include <utility>
#include <vector>

#include "kernels/metal_kernel/metal_kernel_launch.h"
#include "kernels/runtime/encoder.h"

namespace metal_ops {
namespace metal_kernel {

using Kind = MetalKernelArgument::Kind;

constexpr size_t kMaxArguments = 31;  // Metal's buffer indices

// A shader and its arguments: the attributes of a node.
struct Kernel {
  const ShaderLibrary* library = nullptr;
  std::string function;
  std::vector<MetalKernelArgument> arguments;
  size_t n_threadgroup = 0;
  std::vector<int64_t> copied;
  bool initialized = false, atomic = false;

  Status Set(std::string source, const std::string& name, const std::vector<std::string>& texts,
             std::vector<int64_t> copies, bool is_initialized, bool is_atomic, bool fast_math) {
    function = name;
    copied = std::move(copies);
    initialized = is_initialized;
    atomic = is_atomic;
    n_threadgroup = CountThreadgroupArguments(texts);
    if (texts.size() > kMaxArguments) {
      return InvalidArgument("[", function, "] takes ", texts.size(), " arguments; Metal has ",
                             kMaxArguments, " buffer indices");
    }
    for (const std::string& text : texts) {
      if (!arguments.emplace_back().Read(text)) {
        return InvalidArgument("[", function,
                               "] arguments: expected '<name>=<kind>:<number>', got '", text, "'");
      }
    }
    // Without a text it is one of this library's own.
    if (source.empty()) return Status();
    return OpenCode(std::move(source), fast_math, &library);
  }
};

// The kernel that this process keeps under a handle (metal_kernels_keep).
Status FindKept(int64_t handle, const Kernel** kernel);

// A tensor: its argument of the shader, and the parts of its shape that the shader may read.
struct Array {
  Value value;
  DType dtype;
  const int64_t* dims;
  size_t rank;
};

inline int64_t CountElements(const Array& array) {
  int64_t count = 1;
  for (size_t i = 0; i < array.rank; ++i) count *= array.dims[i];
  return count;
}

// Everything of one call. Numbers made of shapes live here until they are encoded.
class Call {
 public:
  Call(const Kernel& kernel, std::vector<Array> inputs, std::vector<Array> outputs,
       std::vector<Value> params)
      : kernel_(kernel),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        params_(std::move(params)) {}

  // Whether the named arguments are there, and fit. Before anything is encoded.
  Status Bind(const MetalKernelLaunch& launch) {
    bound_.reserve(kernel_.arguments.size());
    for (const MetalKernelArgument& argument : kernel_.arguments) {
      const bool of_shape = argument.kind >= Kind::kShape;
      const size_t limit = argument.kind == Kind::kInput         ? inputs_.size()
                           : argument.kind == Kind::kOutput      ? outputs_.size()
                           : argument.kind == Kind::kParam       ? params_.size()
                           : argument.kind == Kind::kThreadgroup ? launch.threadgroup_bytes.size()
                                                                 : inputs_.size() + outputs_.size();
      if (argument.number >= limit) {
        return InvalidArgument("[", kernel_.function, "] argument '", argument.name,
                               "' stands for number ", argument.number, " of ", limit);
      }
      if (of_shape) RETURN_IF_ERROR(CheckShape(argument));
      bound_.push_back({argument.name.c_str(), ToValue(argument, launch)});
    }
    return Status();
  }

  // With `copy(input, output)` for outputs that begin as an input.
  template <typename Copy>
  Status Run(Encoder& encoder, const MetalKernelLaunch& launch, const Copy& copy) {
    if (!kernel_.copied.empty() && kernel_.copied.size() != outputs_.size()) {
      return InvalidArgument("[", kernel_.function, "] copied: expected ", outputs_.size(),
                             " numbers, got ", kernel_.copied.size());
    }
    bool all_written = kernel_.initialized;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      all_written = all_written || CountElements(outputs_[i]) == 0;
      const int64_t from = kernel_.copied.empty() ? -1 : kernel_.copied[i];
      if (from < 0) continue;
      if (from >= static_cast<int64_t>(inputs_.size())) {
        return InvalidArgument("[", kernel_.function, "] copied: there is no input ", from);
      }
      RETURN_IF_ERROR(copy(static_cast<size_t>(from), i));
      all_written = true;
    }
    const int64_t(&side)[3] = launch.grid;
    if (side[0] == 0 || side[1] == 0 || side[2] == 0) {
      if (all_written) return Initialize(encoder);
      return InvalidArgument("[", kernel_.function, "] grid: ", side[0], " x ", side[1], " x ",
                             side[2],
                             " threads write nothing, but there are outputs with elements");
    }
    RETURN_IF_ERROR(Initialize(encoder));
    const int64_t(&group)[3] = launch.group;
    return encoder.Launch(Shader(kernel_.function).In(kernel_.library),
                          Grid(side[0], side[1], side[2]).InGroupsOf(group[0], group[1], group[2]),
                          bound_);
  }

 private:
  Status Initialize(Encoder& encoder) {
    for (size_t i = 0; kernel_.initialized && i < outputs_.size(); ++i) {
      const uint64_t n = static_cast<uint64_t>(CountElements(outputs_[i]));
      RETURN_IF_ERROR(encoder.Launch(Shader(kernel_.function, "init", i).In(kernel_.library),
                                     Grid::Flat(static_cast<int64_t>(n)),
                                     {{"out", outputs_[i].value}, {"n_elements", n}}));
    }
    return Status();
  }

  const Array& Shaped(size_t i) const {
    return i < inputs_.size() ? inputs_[i] : outputs_[i - inputs_.size()];
  }

  // Shaders see sizes in 32 bits.
  Status CheckShape(const MetalKernelArgument& argument) const {
    const Array& array = Shaped(argument.number);
    constexpr int64_t kMaxInt = 0x7fffffff, kMaxUint = 0xffffffff;
    if (argument.kind == Kind::kSize && CountElements(array) > kMaxUint) {
      return InvalidArgument("[", kernel_.function, "] '", argument.name, "' would be ",
                             CountElements(array), "; it is a uint of 32 bits in shaders");
    }
    for (size_t i = 0; argument.kind == Kind::kShape && i < array.rank; ++i) {
      if (array.dims[i] <= kMaxInt) continue;
      return InvalidArgument("[", kernel_.function, "] '", argument.name, "[", i, "]' would be ",
                             array.dims[i], "; it is an int of 32 bits in shaders");
    }
    return Status();
  }

  Value ToValue(const MetalKernelArgument& argument, const MetalKernelLaunch& launch) {
    switch (argument.kind) {
      case Kind::kInput:
        return inputs_[argument.number].value.ReadOnly();
      case Kind::kOutput:
        return outputs_[argument.number].value;
      case Kind::kParam:
        return params_[argument.number];
      case Kind::kThreadgroup:
        return Value::Threadgroup(static_cast<size_t>(launch.threadgroup_bytes[argument.number]));
      case Kind::kNdim:
        return ints_.emplace_front(static_cast<int32_t>(Shaped(argument.number).rank));
      case Kind::kSize:
        return sizes_.emplace_front(static_cast<uint32_t>(CountElements(Shaped(argument.number))));
      case Kind::kShape:
      case Kind::kStrides:
        break;
    }
    const Array& array = Shaped(argument.number);
    if (argument.kind == Kind::kShape) {
      std::vector<int32_t>& dims = shapes_.emplace_front();
      for (size_t i = 0; i < array.rank; ++i) dims.push_back(static_cast<int32_t>(array.dims[i]));
      return HostArray(dims.data(), static_cast<int64_t>(dims.size()));
    }
    std::vector<int64_t>& strides = strides_.emplace_front(array.rank, 1);
    for (size_t i = array.rank; i-- > 1;) strides[i - 1] = strides[i] * array.dims[i];
    return HostArray(strides.data(), static_cast<int64_t>(strides.size()));
  }

  const Kernel& kernel_;
  const std::vector<Array> inputs_, outputs_;
  const std::vector<Value> params_;
  std::vector<Argument> bound_;
  // Values point into these.
  std::forward_list<int32_t> ints_;
  std::forward_list<uint32_t> sizes_;
  std::forward_list<std::vector<int32_t>> shapes_;
  std::forward_list<std::vector<int64_t>> strides_;
};

// A number, or the bytes of a struct.
inline Value ToParam(const void* data, uint64_t bytes, DType dtype) {
  const size_t element = SizeOf(dtype);
  if (element == 0 || bytes == element) {
    switch (bytes) {
      case 1:
        return HostArray(static_cast<const uint8_t*>(data), 1);
      case 2:
        return HostArray(static_cast<const uint16_t*>(data), 1);
      case 4:
        return HostArray(static_cast<const uint32_t*>(data), 1);
      case 8:
        return HostArray(static_cast<const uint64_t*>(data), 1);
    }
  }
  return HostArray(static_cast<const uint8_t*>(data), static_cast<int64_t>(bytes)).Untyped();
}

}  // namespace metal_kernel
}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_METAL_KERNEL_METAL_KERNEL_CALL_H_
