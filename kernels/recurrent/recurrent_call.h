// Arguments of a call of RecurrentSequence or its gradient, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_RECURRENT_RECURRENT_CALL_H_
#define METAL_OPS_KERNELS_RECURRENT_RECURRENT_CALL_H_

#include <string>

#include "kernels/recurrent/recurrent_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

enum class RecurrentCell { kLstm, kGru, kGruResetBefore, kMgu, kForgetGate };

inline RecurrentCell CellOf(const OpCall& call) {
  const std::string& name = call.Text("cell");
  return name == "lstm"               ? RecurrentCell::kLstm
         : name == "gru"              ? RecurrentCell::kGru
         : name == "gru_reset_before" ? RecurrentCell::kGruResetBefore
         : name == "minimal_gated"    ? RecurrentCell::kMgu
                                      : RecurrentCell::kForgetGate;
}

inline int64_t GatesOf(RecurrentCell cell) {
  switch (cell) {
    case RecurrentCell::kLstm:
      return 4;
    case RecurrentCell::kGru:
    case RecurrentCell::kGruResetBefore:
      return 3;
    default:
      return 2;
  }
}

// Whether the last gate, the candidate, sees the state through another gate: a product of its own.
inline bool HasTwoProducts(RecurrentCell cell) {
  return cell == RecurrentCell::kGruResetBefore || cell == RecurrentCell::kMgu;
}

// The saved values of every unit beside the gates: the cell's state, or the factor of the reset
// gate.
inline bool SavesCells(RecurrentCell cell) {
  return cell == RecurrentCell::kLstm || cell == RecurrentCell::kGru;
}

// Outputs of the gradient.
enum RecurrentSlope {
  kDGates,
  kDProducts,
  kDStates,
  kDInitialH,
  kDInitialC,
  kDGamma,
  kDCellGamma,
  kDCellBeta
};

struct RecurrentSizes {
  explicit RecurrentSizes(const OpCall& call)
      : cell(CellOf(call)),
        batch(call.Size("batch")),
        steps(call.Size("time")),
        width(call.Size("width")),
        outputs(call.Size("outputs")),
        units(width / GatesOf(cell)),
        first(HasTwoProducts(cell) ? width - units : width),
        use_mask(call.in_shapes[call.Index("mask")].rank() == 2),
        projects(call.in_shapes[call.Index("projection")].rank() == 2),
        norms_products(call.in_shapes[call.Index("recurrent_gamma")].dims[0] > 0),
        norms_cells(call.in_shapes[call.Index("cell_gamma")].dims[0] > 0) {}

  bool empty() const { return batch * steps * units == 0; }
  bool lstm() const { return cell == RecurrentCell::kLstm; }
  RecurrentParams Params(const OpCall& call, int64_t step) const {
    RecurrentParams p = {};
    p.units = static_cast<uint32_t>(units);
    p.outputs = static_cast<uint32_t>(outputs);
    p.width = static_cast<uint32_t>(width);
    p.first = static_cast<uint32_t>(first);
    p.steps = static_cast<uint32_t>(steps);
    p.step = static_cast<uint32_t>(step);
    p.use_mask = use_mask ? 1 : 0;
    p.projects = projects ? 1 : 0;
    p.beta = call.Float("beta");
    p.epsilon = call.Float("epsilon");
    return p;
  }

  RecurrentCell cell;
  int64_t batch, steps, width, outputs, units;
  int64_t first;  // columns of the product with the state itself
  bool use_mask, projects, norms_products, norms_cells;
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RECURRENT_RECURRENT_CALL_H_
