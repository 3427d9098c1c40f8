// The updates of a variable by optimizers, as patterns look for them: reads of it before and after
// an assignment, and numbers.

#ifndef METAL_OPS_GRAPH_UPDATE_H_
#define METAL_OPS_GRAPH_UPDATE_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/pattern.h"

namespace metal_ops::fusion {

class Update {
 public:
  explicit Update(const Chain& chain) : facts_(chain.facts()), root_(chain.root()) {}

  // An optimizer's slot of a variable: its handle, the value that is assigned or added to it, the
  // op that does that, and a read after it.
  struct Slot {
    Value handle, becomes, after;
    const NodeView* assign = nullptr;
  };
  // The slot that `read` reads after it was assigned to by `op`; null if it is not such a read.
  std::optional<Slot> ReadAfter(const Value& read, const std::string& op);
  // Whether `read` reads the slot's variable before the assignment.
  bool ReadsBefore(const Value& read, const Slot& slot);
  // The operands of a node of this op, which becomes part of the update.
  std::optional<std::pair<Value, Value>> Operands(const Value& value, const std::string& op);
  std::optional<Value> Operand(const Value& value, const std::string& op);
  // The operand of a square, be it Square or Mul.
  std::optional<Value> SquareRoot(const Value& value);
  // For an op with two operands in any order: the operand beside the one that `is` recognises, the
  // second one being asked first where both might be it.
  template <typename Is>
  std::optional<Value> Beside(const Value& value, const std::string& op, const Is& is) {
    const std::vector<const NodeView*> before = nodes_;
    if (const auto both = Operands(value, op)) {
      const std::vector<const NodeView*> with = nodes_;
      if (is(both->second)) return both->first;
      nodes_ = with;
      if (is(both->first)) return both->second;
    }
    nodes_ = before;
    return std::nullopt;
  }

  Shape ShapeOf(const Value& value) const { return facts_.ShapeOf(value); }
  // Whether it is one number for the whole variable.
  bool IsNumber(const Value& value) const {
    const Shape shape = facts_.ShapeOf(value);
    return shape.known_rank && shape.rank() == 0;
  }
  // Whether both are one number, be it written as two constants.
  bool IsSameNumber(const Value& a, const Value& b) const;
  // That each is one number, and that the gradient is provably of every slot's shape: the ops do not
  // broadcast.
  Refusal Check(const Value& gradient, const std::vector<Slot>& slots,
                const std::vector<std::pair<Value, std::string>>& numbers) const;
  // Whether no two handles are the same variable's, the root's among them.
  bool AreDistinct(const std::vector<Slot>& slots) const;

  // Makes it the op `op` with these inputs, all being well.
  Outcome Become(Chain* chain, const std::string& op, const std::vector<Value>& inputs,
                 const std::string& shown) const;

 private:
  Refusal CheckNumber(const Value& value, const std::string& role) const;
  Refusal CheckGradient(const Value& gradient, const Slot& slot) const;
  void Take(const NodeView& node);
  // The value before Identity nodes, which become part of the update.
  Value Behind(Value value);

  const Facts& facts_;
  const NodeView& root_;
  std::vector<const NodeView*> nodes_;
};

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_UPDATE_H_
