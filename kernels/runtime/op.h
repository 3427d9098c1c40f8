// The declaration of an op, written once: inputs, attributes, outputs, their types, dimensions and
// ranges.
//
//   DECLARE_OP("RenderWeights")
//       .Doc("Weights of samples along rays.")
//       //        name and type       shape            description
//       .Input("sigmas: float",   "[rays, samples]", "Densities.")
//       .Input("length: float",   "[]",              "Of a step.")
//       .Attr("power: float = 1.0", "An exponent.", AtLeast(0))
//       .Output("weights: float", "like sigmas",     "Shaped like sigmas.");
//
// From it come the op's registration and shape function, the checks of every device's kernel with
// the same messages, the outputs' memory, and the argument checks in Python. Types and attributes
// are written as TensorFlow writes them. A shape is "any", "like features", or a list of numbers
// and names, "[points, 3]"; a name has one size throughout a call. A dimension may be a product or
// more than a name, "[points, levels*features]", "[levels + 1]"; an output's may be the value of a
// scalar integer input of that name. A function checks the rest (Check).
//
// No TensorFlow, no Metal: kernels/tensorflow/ registers these declarations.

#ifndef METAL_OPS_KERNELS_RUNTIME_OP_H_
#define METAL_OPS_KERNELS_RUNTIME_OP_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/runtime/arg_shapes.h"
#include "kernels/runtime/dtype.h"
#include "kernels/simd/float_types.h"

namespace metal_ops {

inline FloatType ToFloatType(DType type) {
  if (type == DType::kHalf) return FloatType::kHalf;
  return type == DType::kBfloat16 ? FloatType::kBfloat16 : FloatType::kFloat;
}

// The value of an attribute of a node, in the order of AttrKind.
using AttrValue = std::variant<bool, int64_t, float, std::string, DType, std::vector<int64_t>,
                               std::vector<std::string>, std::vector<DType>>;
enum class AttrKind { kBool, kInt, kFloat, kText, kType, kInts, kTexts, kTypes };

// The range of a number.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  const char* remedy = "";  // a sentence
};
inline Range AtLeast(double low, const char* remedy = "") {
  return {low, std::numeric_limits<double>::infinity(), remedy};
}
inline Range Between(double low, double high, const char* remedy = "") {
  return {low, high, remedy};
}

class CpuCall;
class OpCall;

// Where Metal kernels find an argument's bytes.
enum class Memory { kDevice, kHost, kHostIfInteger };

struct OpArg {
  std::string name, type;  // "features", "T"
  std::string shape, doc;
  Memory memory = Memory::kDevice;
  std::string variable;  // of a resource: the type of the variable's elements
  std::string list;      // of several tensors: the attribute that says how many
};

struct OpAttr {
  std::string name, spec, doc;  // "lambd", "lambd: float = 0.5"
  AttrKind kind = AttrKind::kInt;
  Range range;
  std::vector<DType> types;  // kType: those allowed
};

// The allowed sizes of a dimension.
struct OpSizes {
  std::string dim, allowed;  // "F", "1, 2, 4 or 8"
  bool (*good)(int64_t);
};

// An op whose outputs are a formula of its inputs' elements.
struct ElementwiseOp {
  const char* shader = nullptr;
  void (*cpu)(CpuCall&) = nullptr;
  size_t n_values = 0;  // floats, the formula's attributes
};

struct OpDeclaration {
  std::string name, doc;
  std::vector<OpArg> inputs, outputs;
  std::vector<OpAttr> attrs;
  std::vector<OpSizes> sizes;
  void (*check_attrs)(OpCall&) = nullptr;
  void (*check)(OpCall&) = nullptr;
  int reused_input = -1;  // whose memory output 0 may take
  bool reused_on_metal = true;
  bool differentiable = true;
  ElementwiseOp elementwise;

  int Attr(const std::string& attr) const;  // its number, or -1
  bool has_variables() const;
};

// One call, or one node of a graph, as far as it is known: attributes, shapes.
class OpCall {
 public:
  OpCall(const OpDeclaration& op, const std::vector<AttrValue>& attrs,
         std::vector<ArgShape> input_shapes)
      : op(op), shapes(op.name), in_shapes(std::move(input_shapes)), attrs_(attrs) {}
  virtual ~OpCall() = default;
  OpCall(const OpCall&) = delete;
  OpCall& operator=(const OpCall&) = delete;

  bool Bool(const char* attr) const { return std::get<bool>(Get(attr)); }
  int64_t Int(const char* attr) const { return std::get<int64_t>(Get(attr)); }
  float Float(const char* attr) const { return std::get<float>(Get(attr)); }
  const std::string& Text(const char* attr) const { return std::get<std::string>(Get(attr)); }
  DType Type(const char* attr) const { return std::get<DType>(Get(attr)); }
  const std::vector<int64_t>& Ints(const char* attr) const {
    return std::get<std::vector<int64_t>>(Get(attr));
  }
  const std::vector<std::string>& Texts(const char* attr) const {
    return std::get<std::vector<std::string>>(Get(attr));
  }
  const std::vector<DType>& Types(const char* attr) const {
    return std::get<std::vector<DType>>(Get(attr));
  }

  // -1: not known yet.
  int64_t Size(const std::string& dim) const { return shapes.Size(dim); }

  // An input's value, where the host can know it: of constants while a graph is built, then of
  // tensors in host memory. Else null.
  virtual const void* HostValue(int) const { return nullptr; }
  template <typename T>
  T Scalar(const char* input) const {
    T value;
    std::memcpy(&value, HostValue(Index(input)), sizeof(value));
    return value;
  }

  // Tensors are numbered through, those of a list too. -1: there is none of that name.
  int Index(const char* input) const;
  int Count(const OpArg& input) const;  // 1, or the length of a list
  const OpArg& InputArg(int input) const;
  std::string InputName(int input) const;  // "args[1]"
  DType InputType(int input) const;        // of a variable: its elements'

  // The errors of a variable, as adapters find them.
  void CheckVariable(int input, DType type);
  void CheckDistinct(int input, bool distinct);
  std::string NoValue(int input) const;

  // Attributes alone: errors are in `shapes` then. Then all, and the outputs' shapes.
  bool CheckAttrs();
  bool CheckAll();

  // Float attributes in order, as a formula's struct holds them.
  std::vector<float> FormulaValues() const;

  const OpDeclaration& op;
  ArgShapes shapes;
  std::vector<ArgShape> in_shapes, out_shapes;

 private:
  const AttrValue& Get(const char* attr) const;
  ArgShape OutputShape(const OpArg& output);
  // A dimension's, or a scalar input's value; -1 if not known yet.
  int64_t SizeOrValue(const std::string& name);

  const std::vector<AttrValue>& attrs_;
};

// Whether nothing of a shape is unknown.
inline bool IsAllKnown(const ArgShape& shape) {
  for (const int64_t size : shape.dims) {
    if (size < 0) return false;
  }
  return shape.known_rank;
}

// A mean over the last dimension has a shape without it.
inline ArgShape WithoutLastIf(bool reduced, ArgShape shape) {
  if (reduced && shape.rank() > 0) shape.dims.pop_back();
  return shape;
}

// One call of a CPU kernel. All inputs have been checked; outputs whose shapes follow from the
// declaration have their memory.
class CpuCall : public OpCall {
 public:
  using OpCall::OpCall;

  template <typename T>
  const T* in(int i) const {
    return static_cast<const T*>(inputs[i].data);
  }
  template <typename T>
  T* out(int i) const {
    return static_cast<T*>(outputs[i].data);
  }
  const void* HostValue(int i) const override { return inputs[i].data; }
  // A variable's elements, locked until the call ends.
  template <typename T>
  T* variable(int i) const {
    return static_cast<T*>(const_cast<void*>(inputs[i].data));
  }
  FloatArray floats(int i) const { return {inputs[i].data, ToFloatType(inputs[i].type)}; }
  MutableFloatArray float_out(int i) const {
    return {outputs[i].data, ToFloatType(outputs[i].type)};
  }

  struct Input {
    const void* data;
    DType type;
    int64_t n_elements;
    int64_t n_bytes;
  };
  struct Output {
    void* data;
    DType type;
    int64_t n_elements;
    int64_t n_bytes;
  };
  std::vector<Input> inputs;
  std::vector<Output> outputs;

  // For shapes that only the kernel knows, with the memory of input `reused` if nothing else needs
  // that. False: it failed, and that is reported.
  virtual bool Allocate(int output, const std::vector<int64_t>& shape, int reused = -1) = 0;
  // Memory until the call ends. Null: there is none, and that is reported.
  virtual void* Scratch(int64_t n_bytes) = 0;
  // Whether anything will read an output.
  virtual bool IsWanted(int output) const = 0;
  // Calls `work(begin, end)` on ranges of [0, n) on as many threads as are worth it. `cycles` is
  // the cost of one of the n.
  virtual void ParallelFor(int64_t n, int64_t cycles,
                           const std::function<void(int64_t, int64_t)>& work) = 0;
  // Calls `work(task, thread)` once for each task on up to `threads` threads: parallel.h.
  virtual int64_t n_threads() const = 0;
  virtual void RunTasks(int64_t n_tasks, int64_t threads,
                        const std::function<void(int64_t, int64_t)>& work) = 0;
  // Elements of an input as float32, as FloatArray::Read; and back to an output, rounded.
  virtual const float* Read(int input, int64_t begin, int64_t n, float* buffer) const = 0;
  virtual void Store(int output, int64_t begin, int64_t n, const float* piece) const = 0;
};

// ---- declaring
// --------------------------------------------------------------------------------------------

namespace internal {

template <typename F, typename... A>
constexpr size_t Arity(float (F::*)(A...) const) {
  return sizeof...(A);
}

// In pieces that stay in the first cache. In place the compiler could not vectorise, for all it
// knows: results are kept apart at first.
template <typename Formula, size_t... kInput>
void ElementwiseLoop(CpuCall& call, const Formula& formula, std::index_sequence<kInput...>) {
  constexpr int64_t kPiece = 1024, kCycles = 2;
  const MutableFloatArray to = call.float_out(0);
  const bool in_place = (... || (call.inputs[kInput].data == to.data));
  call.ParallelFor(call.outputs[0].n_elements, kCycles, [&](int64_t begin, int64_t end) {
    float wide[sizeof...(kInput)][kPiece];
    float result[kPiece];
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t n = at + kPiece < end ? kPiece : end - at;
      const float* const from[] = {call.Read(kInput, at, n, wide[kInput])...};
      float* const piece = in_place ? result : to.Piece(at, result);
      for (int64_t i = 0; i < n; ++i) piece[i] = formula(from[kInput][i]...);
      if (piece == result) call.Store(0, at, n, result);
    }
  });
}

template <typename Formula>
void ElementwiseKernel(CpuCall& call) {
  Formula formula;
  if constexpr (!std::is_empty_v<Formula>) {
    const std::vector<float> values = call.FormulaValues();
    std::memcpy(static_cast<void*>(&formula), values.data(), sizeof(formula));
  }
  ElementwiseLoop(call, formula, std::make_index_sequence<Arity(&Formula::operator())>());
}

}  // namespace internal

class OpBuilder {
 public:
  explicit OpBuilder(const char* name) { op_.name = name; }

  // The op's description: a line, then more after an empty line.
  OpBuilder& Doc(const char* text) {
    op_.doc = text;
    return *this;
  }
  OpBuilder& Attr(const char* spec, const char* doc = "", Range range = {});
  // Host memory is where Metal kernels look at the values themselves.
  OpBuilder& Input(const char* name_and_type, const char* shape, const char* doc = "",
                   Memory memory = Memory::kDevice);
  OpBuilder& Output(const char* name_and_type, const char* shape, const char* doc = "",
                    Memory memory = Memory::kDevice);
  // A variable that the op updates: "m: float(T)" is of float32, of float64 where T is.
  OpBuilder& Variable(const char* name_and_type, const char* shape, const char* doc = "");
  // The allowed sizes of a dimension: .Sizes("D", "2 or 3", [](int64_t n) { return ... }).
  OpBuilder& Sizes(const char* dim, const char* allowed, bool (*good)(int64_t)) {
    op_.sizes.push_back({dim, allowed, good});
    return *this;
  }
  // Attributes, inputs and checks that several ops share.
  OpBuilder& With(void (*part)(OpBuilder&)) {
    part(*this);
    return *this;
  }
  // Conditions on attributes alone, beyond their ranges; conditions on a call, after its shapes
  // were compared with the declared ones. It may also set `out_shapes` and define dimensions.
  OpBuilder& CheckAttrs(void (*check)(OpCall&)) {
    op_.check_attrs = check;
    return *this;
  }
  OpBuilder& Check(void (*check)(OpCall&)) {
    op_.check = check;
    return *this;
  }
  // Output 0 may take the memory of an input of its type and shape.
  OpBuilder& Reuses(int input, bool on_metal = true) {
    op_.reused_input = input;
    op_.reused_on_metal = on_metal;
    return *this;
  }
  // Derivatives of the op are refused with a sentence.
  OpBuilder& NotDifferentiable() {
    op_.differentiable = false;
    return *this;
  }
  // `Formula` is a struct of the op's float attributes, in their order, with
  // float operator()(float...) const, which host and shader compile. Its kernels on every device
  // follow from it; `shader` is its name in ELEMENTWISE (elementwise.metal.h).
  template <typename Formula>
  OpBuilder& Elementwise(const char* shader) {
    static_assert(std::is_trivially_copyable_v<Formula>, "the shader gets a copy of the bytes");
    op_.elementwise = {shader, internal::ElementwiseKernel<Formula>,
                       std::is_empty_v<Formula> ? 0 : sizeof(Formula) / sizeof(float)};
    return *this;
  }

  OpDeclaration op_;
};

// Adds an op, and a CPU kernel, to the library that this is linked into; kernels/tensorflow/
// defines the effect there.
struct DeclaredOp {
  DeclaredOp(const OpBuilder& builder);
};
struct CpuKernel {
  CpuKernel(const char* op, void (*kernel)(CpuCall&));
};

// Null: there is none of that name in this library.
const OpDeclaration* FindOp(const std::string& name);

namespace internal {

// Remembers a declaration for ever.
const OpDeclaration& Remember(const OpDeclaration& op);
std::vector<const OpDeclaration*> AllOps();
// TensorFlow's text of all descriptions.
std::string Description(const OpDeclaration& op);

}  // namespace internal

}  // namespace metal_ops

#define METAL_OPS_OP_NAME_(number) declared_op_##number
#define METAL_OPS_OP_NAME(number) METAL_OPS_OP_NAME_(number)
#define DECLARE_OP(name)                                                                 \
  [[maybe_unused]] static const ::metal_ops::DeclaredOp METAL_OPS_OP_NAME(__COUNTER__) = \
      ::metal_ops::OpBuilder(name)

// CPU_KERNEL("ScaleSlope", ScaleSlope); with void ScaleSlope(CpuCall& call).
#define CPU_KERNEL(op, function) \
  [[maybe_unused]] static const ::metal_ops::CpuKernel METAL_OPS_OP_NAME(__COUNTER__)(op, function)

#endif  // METAL_OPS_KERNELS_RUNTIME_OP_H_
