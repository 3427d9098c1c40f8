// Nodes that are to become one: a convolution or matrix product and the ops around it, or an
// expression of several ops. Patterns extend it; the conditions that hold for every pattern are
// checked here.

#ifndef METAL_OPS_GRAPH_CHAIN_H_
#define METAL_OPS_GRAPH_CHAIN_H_

#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/facts.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/tensor.h"

namespace metal_ops::fusion {

// The fused ops after the root, in this order, each at most once; a prologue comes before it. An
// expression is a chain of its own, which nothing extends; an update is one that changes variables.
enum class Stage { kRoot, kPrologue, kBias, kNorm, kAdd, kActivation, kExpression, kUpdate };

// The nodes and values that chosen chains have taken.
struct Claimed {
  std::unordered_set<int> nodes;
  std::set<std::pair<int, int>> inputs;  // of the new ones: nodes by number, and ports; -1: control
  std::vector<Redirect> redirects;
};

class Chain {
 public:
  // `claimed` outlives the chain.
  Chain(const Facts& facts, const NodeView& root, const Claimed& claimed);

  const Facts& facts() const { return *facts_; }
  const NodeView& root() const { return *nodes_.front(); }
  // The chain's result so far.
  const Value& value() const { return value_; }
  // Root first. value() gives its name to the fused one.
  const std::vector<const NodeView*>& nodes() const { return nodes_; }

  // ---- for roots ----

  // The fused op, its attributes but those of the epilogue; its first inputs are the root's first
  // two, unless others are set.
  void Start(const std::string& op, tensorflow::DataType type, bool nchw, int64_t channels);
  tensorflow::NodeDef* node() { return &node_; }
  void SetInputs(std::vector<std::string> inputs) { inputs_ = std::move(inputs); }

  // ---- for prologues ----

  // Takes over the node that makes the root's first input, of which nothing else may know.
  Refusal AbsorbInput(const NodeView& node);
  void Prepend(const std::string& what) { before_.push_back(what); }
  // Why a prologue was left outside; said where nothing else is to be said.
  void set_aside(const Refusal& refusal) { aside_ = refusal; }
  const Refusal& aside() const { return aside_; }

  // ---- for expressions ----

  // Takes over all of `nodes`, the root among them, of which the last one's output 0 is the result,
  // or its first `outputs` are those of the new op.
  Refusal AbsorbAll(const std::vector<const NodeView*>& nodes, int outputs = 1);
  // Takes off `nodes`, of which `last` is none: those that nodes outside of them and `last` read or
  // wait for, and those that wait for nodes outside of them and the `inputs`.
  void LeaveShared(const NodeView& last, const std::vector<Value>& inputs,
                   std::vector<const NodeView*>* nodes) const;
  // For updates, of which the root is the last node: the new op waits for the same nodes, and the
  // same nodes wait for it. With their order kept, no op reads a variable in between.
  Refusal AbsorbUpdate(const std::vector<const NodeView*>& nodes);
  // Takes over two nodes of which any op may read: the new op has the name of `first` and its result
  // as output 0. That of `second` is output 1, which a node of its name passes on: `op`. With them go
  // `inner` ones, those that LeaveShared has left; the root is among all of these. The second node
  // waits for `inputs` from now on.
  Refusal AbsorbPair(const NodeView& first, const NodeView& second, const std::string& op,
                     const std::vector<const NodeView*>& inner, const std::vector<Value>& inputs);
  tensorflow::NodeDef* reader() { return &stand_ins_.back(); }
  // The name of the new op in `explain`, where the one that takes the result's name only reshapes
  // it.
  void set_shown_op(const std::string& op) { shown_op_ = op; }
  std::string shown_op() const { return shown_op_.empty() ? Finished().op() : shown_op_; }
  // A constant. It waits for `beside`, as in a loop a node without inputs would belong to no turn.
  std::string AddConst(const std::string& what, const tensorflow::Tensor& value,
                       const Value& beside);
  std::string AddInts(const std::string& what, const std::vector<int64_t>& values,
                      const Value& beside);
  // n times the same number.
  std::string AddFloats(const std::string& what, int64_t n, float number, tensorflow::DataType type,
                        const Value& beside);

  // ---- for epilogues ----

  tensorflow::DataType type() const { return type_; }
  bool nchw() const { return nchw_; }
  // Size of the output's channel dimension (the last one of a product), -1 if it is not known.
  int64_t channels() const { return channels_; }
  Stage stage() const { return stage_; }
  const std::vector<std::string>& fused_ops() const { return fused_ops_; }
  // The prologue's and those, as `explain` lists them.
  std::vector<std::string> shown_ops() const;
  const std::vector<std::string>& args() const { return args_; }

  // Takes over `nodes`, of which the last one's output 0 becomes the value. All conditions on nodes
  // that vanish are checked; where one fails the chain is unchanged. More than one edge from the
  // present value is allowed if `shared`.
  Refusal Absorb(const std::vector<const NodeView*>& nodes, bool shared = false);
  // Records that the nodes absorbed were this op of the fused op's list.
  void Append(Stage stage, const std::string& fused_op);
  void AddArg(const std::string& input, tensorflow::DataType type);
  void ReplaceArgs();
  void SetFloatAttr(const std::string& name, float value);

  // The operand as [C], for an op that broadcasts it over all but the channels; "" and a reason if
  // it is not such. A [1, .., C] gets a Squeeze.
  std::string ChannelVector(const Value& operand, const std::string& role, Refusal* why_not);
  // A small node beside the fused one; returns its name. Inputs as NodeDef writes them.
  std::string AddHelper(const std::string& op, const std::string& what,
                        const std::vector<std::string>& inputs,
                        const std::vector<std::pair<std::string, tensorflow::DataType>>& types);
  // The node that was added last.
  tensorflow::NodeDef* helper() { return &helpers_.back(); }

  // ---- for the rewriter ----

  void set_pattern(const std::string& name);
  const std::string& pattern() const { return pattern_; }
  // Whether there is anything to win.
  bool is_fused() const { return nodes_.size() > 1; }
  const std::vector<tensorflow::NodeDef>& helpers() const { return helpers_; }
  // The fused node. Complete only after the last extension.
  tensorflow::NodeDef Finished() const;
  // Whether a new node needs one that vanishes, as in silu(x) silu(x), where up is the gate's own.
  Refusal CheckInputs() const;
  // Whether every new node has a kernel on the chain's device.
  Refusal CheckKernels() const;
  // Nodes that no result depends on and that use vanishing ones: they have to go with them.
  std::vector<const NodeView*> DeadUsers() const;
  // The nodes that ask a vanishing node for its shape, and have to ask the fused one.
  std::vector<Redirect> Redirects() const;
  // The nodes that take the names of vanishing nodes: the reader; for updates a NoOp for each node
  // that others wait for, or that the function must run.
  std::vector<tensorflow::NodeDef> StandIns() const;
  // Edges that a new op adds: for updates, by which a node that depends on one of the nodes depends
  // on all of them; for pairs, by which the second node depends on the first one's inputs.
  std::vector<Redirect> Joined() const;
  // Whether the redirects lead in a circle, by themselves or with those of chains claimed since; or
  // whether something is between the nodes of an update.
  Refusal CheckCircle() const;

 private:
  Refusal CheckVanishes(const NodeView& node, const std::unordered_set<int>& inside) const;
  Refusal CheckTaken(const NodeView& node) const;
  Refusal CheckFree(const NodeView& node) const;
  std::vector<Use> Uses(const Value& value) const;
  std::vector<Use> ShapeUses(const Value& value) const;
  std::vector<Use> NotClaimed(const Value& value, std::vector<Use> uses) const;
  Refusal CheckOutputs(const NodeView& last, int outputs) const;
  Refusal CheckCircle(const NodeView& last, const std::vector<Use>& shape_uses) const;
  Refusal CheckBetween(const std::vector<const NodeView*>& nodes) const;

  const Facts* facts_;
  const Claimed* claimed_;
  std::vector<const NodeView*> nodes_;
  std::vector<Use> shape_uses_;  // of nodes that vanish
  std::vector<Redirect> joined_;
  Value value_;
  tensorflow::DataType type_ = tensorflow::DT_INVALID;
  bool nchw_ = false;
  int64_t channels_ = -1;
  Stage stage_ = Stage::kRoot;
  std::string pattern_;
  tensorflow::NodeDef node_;
  std::string shown_op_;
  Refusal aside_;
  std::vector<std::string> inputs_, before_, fused_ops_, args_, waits_;
  std::vector<tensorflow::DataType> arg_types_;
  std::vector<tensorflow::NodeDef> helpers_, stand_ins_;
};

// Type of a device by its name, e.g. "GPU"; "" if the node was not placed.
std::string DeviceType(const std::string& device);

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_CHAIN_H_
