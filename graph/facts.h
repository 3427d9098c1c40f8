// The facts of a graph for a fusion pattern: who uses a tensor, its shape, whether a node may go.

#ifndef METAL_OPS_GRAPH_FACTS_H_
#define METAL_OPS_GRAPH_FACTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/types.pb.h"
#include "tensorflow/core/grappler/costs/graph_properties.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/grappler/utils/graph_view.h"

namespace metal_ops::fusion {

using NodeView = tensorflow::grappler::utils::NodeView;

// Output `port` of a node.
struct Value {
  const NodeView* node = nullptr;
  int port = 0;
  bool operator==(const Value& other) const { return node == other.node && port == other.port; }
};

// One edge to a consumer: input `input` of a node.
struct Use {
  const NodeView* node = nullptr;
  int input = 0;
};

// A dimension below -1 is a symbol: unknown, but equal where the symbol is. -1 is unknown
// altogether.
struct Shape {
  bool known_rank = false;
  std::vector<int64_t> dims;

  int rank() const { return static_cast<int>(dims.size()); }
  std::string ToString() const;
};

// Whether a node reads nothing but shapes.
bool AsksForShape(const NodeView& node);

// Whether two dimensions, or two tensors' shapes, are the same in every run.
bool SameDim(int64_t a, int64_t b);
bool SameShape(const Shape& a, const Shape& b);
// Whether they are known to differ in every run.
bool DifferentShape(const Shape& a, const Shape& b);

// The condition that failed, and a sentence that names the nodes. Empty: nothing to say.
struct Refusal {
  std::string condition;
  std::string reason;
  bool empty() const { return condition.empty(); }
};

// `use` asks a node that vanishes for nothing but its shape; from now on it asks `to`, which has
// the same one.
struct Redirect {
  Use use;
  const NodeView* to = nullptr;
};

class Facts {
 public:
  // The questions are about item.graph; fetches, feeds and further nodes to keep are those of the
  // item.
  static absl::Status Make(const tensorflow::grappler::GrapplerItem& item,
                           std::unique_ptr<Facts>* facts);

  const tensorflow::grappler::utils::GraphView& view() const { return *view_; }

  Value Input(const NodeView& node, int input) const;
  // Consumers that matter: those on which a result or a side effect depends, and that read values.
  std::vector<Use> Uses(const Value& value) const;
  // Those that only want to know the shape. Gradients do, where a dimension is unknown.
  std::vector<Use> ShapeUses(const Value& value) const;
  // Whether no result and no side effect depends on the node: Keras leaves such nodes behind.
  bool IsDead(const NodeView& node) const { return !live_[node.node_index()]; }
  // Whether `to` depends on `from`, also over the edges that these redirects add.
  bool DependsOn(const NodeView& to, const NodeView& from,
                 const std::vector<Redirect>& redirects) const;
  // The first of `to`, by number, that is reached from one of `from`; null if none depends on them.
  const NodeView* FirstDependent(const std::unordered_set<int>& to,
                                 const std::vector<const NodeView*>& from,
                                 const std::vector<Redirect>& redirects) const;
  // Whether the consumer is the function's result, maybe behind an Identity.
  bool IsReturn(const Use& use) const;
  // Fetched, fed, or kept by the caller.
  bool IsPreserved(const NodeView& node) const;
  bool IsFetched(const NodeView& node) const;
  bool IsFed(const NodeView& node) const;

  Shape ShapeOf(const Value& value) const;
  tensorflow::DataType TypeOf(const Value& value) const;
  // A constant of one element, seen through Identity and Cast.
  std::optional<double> Scalar(const Value& value) const;
  // The elements of a constant of integers, seen through Identity.
  std::optional<std::vector<int64_t>> Ints(const Value& value) const;

 private:
  Facts() = default;
  void FindLive();
  std::vector<Use> LiveUses(const Value& value, bool of_shape) const;

  std::unique_ptr<tensorflow::grappler::utils::GraphView> view_;
  std::unique_ptr<tensorflow::grappler::GraphProperties> properties_;
  std::unordered_set<std::string> preserved_, fetched_, fed_;
  std::vector<bool> live_;
};

// Attributes, with a default where the node has none.
std::string StringAttr(const NodeView& node, const std::string& name, const std::string& otherwise);
bool BoolAttr(const NodeView& node, const std::string& name, bool otherwise);
float FloatAttr(const NodeView& node, const std::string& name, float otherwise);
tensorflow::DataType TypeAttr(const NodeView& node, const std::string& name);
std::vector<int64_t> IntsAttr(const NodeView& node, const std::string& name);

// 'name' (Op), as reasons call a node.
std::string Quoted(const NodeView& node);
// "name" or "name:port", as a NodeDef calls its input.
std::string InputName(const Value& value);

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_FACTS_H_
