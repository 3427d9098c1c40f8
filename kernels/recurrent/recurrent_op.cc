// RecurrentSequence, a layer of recurrent cells over whole sequences, and its gradient.

#include <string>
#include <utility>
#include <vector>

#include "kernels/recurrent/recurrent_call.h"

namespace metal_ops {
namespace {

ArgShape Of(std::vector<int64_t> sizes) { return ArgShape(std::move(sizes)); }

// [0], or the shape in `dims`.
void ExpectOrNone(OpCall& call, const char* arg, const std::vector<std::string>& dims) {
  const ArgShape& shape = call.in_shapes[call.Index(arg)];
  if (shape.rank() == 1 && shape.dims[0] == 0) return;
  call.shapes.Expect(arg, shape, dims, "[0] stands for none.");
}

void ExpectNone(OpCall& call, const char* arg, const char* why) {
  const ArgShape& shape = call.in_shapes[call.Index(arg)];
  const bool none = !shape.known_rank || (shape.rank() == 1 && shape.dims[0] <= 0);
  call.shapes.Require(
      none, std::string(arg) + " must be [0], as " + why + ", got " + ToText(shape) + ".");
}

// A shape that exists only with a norm: `dims` where its gamma is given, [0] where not.
ArgShape WithNorm(const OpCall& call, const char* gamma, std::vector<int64_t> dims) {
  const ArgShape& shape = call.in_shapes[call.Index(gamma)];
  if (shape.rank() != 1 || shape.dims[0] < 0) return ArgShape();
  return shape.dims[0] > 0 ? Of(std::move(dims)) : Of({0});
}

// Checks the inputs that both ops have. Returns the units, or -1.
int64_t CheckCell(OpCall& call) {
  const RecurrentCell cell = CellOf(call);
  const int64_t gates = GatesOf(cell), width = call.Size("width"), outputs = call.Size("outputs");
  const std::string& name = call.Text("cell");
  ExpectOrNone(call, "mask", {"batch", "time"});
  ExpectOrNone(call, "recurrent_gamma", {"width"});
  const ArgShape& projection = call.in_shapes[call.Index("projection")];
  if (cell != RecurrentCell::kLstm) {
    ExpectNone(call, "initial_c", "only the lstm has a cell's state");
    ExpectNone(call, "projection", "only the lstm has one");
    ExpectNone(call, "cell_gamma", "only the lstm has a cell's state");
    ExpectNone(call, "cell_beta", "only the lstm has a cell's state");
  }
  if (width < 0) return -1;
  call.shapes.Require(width % gates == 0, "the last dimension of gates must be a multiple of " +
                                              std::to_string(gates) + ", the gates of " + name +
                                              ", got " + std::to_string(width) + ".");
  const int64_t units = width / gates;
  const std::string n = std::to_string(units);
  if (cell == RecurrentCell::kLstm) {
    call.shapes.Expect("initial_c", call.in_shapes[call.Index("initial_c")], {"batch", n});
    ExpectOrNone(call, "projection", {n, "outputs"});
    ExpectOrNone(call, "cell_gamma", {n});
    const ArgShape& gamma = call.in_shapes[call.Index("cell_gamma")];
    if (gamma.rank() == 1 && gamma.dims[0] >= 0) {
      call.shapes.Expect("cell_beta", call.in_shapes[call.Index("cell_beta")],
                         {std::to_string(gamma.dims[0])}, "It is given with cell_gamma.");
    }
    call.shapes.Require(projection.rank() != 2 || (units > 0 && outputs != 0),
                        "a projection must have rows and columns, got " + ToText(projection) + ".");
  }
  const bool none = projection.rank() == 1 || cell != RecurrentCell::kLstm;
  if (none && outputs >= 0) {
    call.shapes.Require(outputs == units, "recurrent_kernel must have a row for each of the " + n +
                                              " units, got " + std::to_string(outputs) + " rows.");
  }
  // Sizes of products are 32 bits.
  for (const char* dim : {"batch", "time", "width"}) {
    call.shapes.Require(call.Size(dim) < int64_t{1} << 31,
                        std::string("there must be less than 2^31 of ") + dim + ", got " +
                            std::to_string(call.Size(dim)) + ".");
  }
  return units;
}

void SetOutputs(OpCall& call) {
  const RecurrentCell cell = CellOf(call);
  const int64_t units = CheckCell(call);
  const int64_t batch = call.Size("batch"), steps = call.Size("time");
  if (cell == RecurrentCell::kGru) {
    ExpectOrNone(call, "recurrent_bias", {"width"});
  } else {
    ExpectNone(call, "recurrent_bias", "only the gru has a bias behind its second product");
  }
  call.out_shapes[2] = SavesCells(cell) ? Of({batch, steps, units}) : Of({0});
  call.out_shapes[4] = cell == RecurrentCell::kLstm ? Of({batch, units}) : Of({0});
  call.out_shapes[5] = WithNorm(call, "recurrent_gamma", {batch, steps, call.Size("width")});
}

void SetGradients(OpCall& call) {
  const RecurrentCell cell = CellOf(call);
  const int64_t units = CheckCell(call);
  const int64_t batch = call.Size("batch"), steps = call.Size("time");
  const bool lstm = cell == RecurrentCell::kLstm;
  if (units >= 0) {
    const std::string n = std::to_string(units);
    const auto expect = [&](const char* arg, bool there, const std::vector<std::string>& dims) {
      call.shapes.Expect(arg, call.in_shapes[call.Index(arg)],
                         there ? dims : std::vector<std::string>{"0"});
    };
    expect("d_c", lstm, {"batch", n});
    expect("cells", SavesCells(cell), {"batch", "time", n});
  }
  const bool projects = call.in_shapes[call.Index("projection")].rank() == 2;
  const int64_t width = call.Size("width"), outputs = call.Size("outputs");
  const ArgShape products = WithNorm(call, "recurrent_gamma", {batch, steps, width});
  if (products.known_rank) {
    using Names = std::vector<std::string>;
    call.shapes.Expect("products", call.in_shapes[call.Index("products")],
                       products.rank() == 3 ? Names{"batch", "time", "width"} : Names{"0"});
  }
  call.out_shapes[1] = cell == RecurrentCell::kGru ? Of({batch, steps, width}) : products;
  call.out_shapes[2] = projects ? Of({batch, steps, outputs}) : Of({0});
  call.out_shapes[5] = WithNorm(call, "recurrent_gamma", {batch, width});
  call.out_shapes[6] = call.out_shapes[7] = WithNorm(call, "cell_gamma", {batch, units});
}

void Attrs(OpBuilder& op) {
  op.Attr("T: {float, half, bfloat16} = DT_FLOAT")
      .Attr("cell: {'lstm', 'gru', 'gru_reset_before', 'minimal_gated', 'forget_gate'}",
            "The kind of cell. Its gates lie one after the other: i, f, g, o of lstm; z, r, n of "
            "both kinds of gru; f, n of the others.")
      .Attr("beta: float = 1.0", "For forget_gate: how far its input gate lies below.")
      .Attr("epsilon: float = 1e-5", "Added to the variances of norms.", AtLeast(0));
}

void States(OpBuilder& op) {
  op.Input("recurrent_kernel: T", "[outputs, width]", "The factor of a state.")
      .Input("initial_h: T", "[batch, outputs]", "The state that the first step sees.")
      .Input("initial_c: T", "any", "The same of an lstm's cells, [batch, units]; else [0].")
      .Input("mask: bool", "any",
             "[batch, time], or [0]: where it is false a step is left out, and the state stays.")
      .Input("projection: T", "any",
             "For an lstm: [units, outputs], with which the output of the cells is multiplied; or "
             "[0].")
      .Input("recurrent_gamma: T", "any",
             "[width], or [0] for none: the factor of a product with the state, less its mean and "
             "over its standard deviation.")
      .Input("cell_gamma: T", "any",
             "For an lstm: [units], or [0] for none: the same of the cells' state that is shown.")
      .Input("cell_beta: T", "any", "The addend of that, where there is a cell_gamma; else [0].");
}

DECLARE_OP("RecurrentSequence")
    .Doc(R"doc(
A layer of recurrent cells over whole sequences.

States, products and sums are float32 whatever T. Where mask is false the state before is the state after, and the
output.)doc")
    .With(Attrs)
    .Input("gates: T", "[batch, time, width]",
           "The input's products, x W + b, with room for every gate of every unit.")
    .With(States)
    .Input("recurrent_bias: T", "any",
           "For gru: [width], added to the product with the state; or [0].")
    .Output("activated: T", "like gates", "The gates, activated; 0 where mask is false.")
    .Output("y: T", "[batch, time, outputs]", "The state after each step.")
    .Output("cells: float", "any",
            "[batch, time, units]: for lstm the cells' state after each step, for gru the "
            "factor of r; else [0].")
    .Output("h: T", "[batch, outputs]", "The state after the last step.")
    .Output("c: T", "any", "The cells' after it, [batch, units]; [0] if there is none.")
    .Output(
        "products: float", "any",
        "With a recurrent_gamma: the products before their norm, [batch, time, width]; else [0].")
    .Check(SetOutputs)
    .Reuses(0);

DECLARE_OP("RecurrentSequenceGrad")
    .Doc(R"doc(
The gradient of RecurrentSequence, but for products over all steps.

That of recurrent_kernel is the product of what the steps began with and of d_gates, or d_products.)doc")
    .With(Attrs)
    .Input("d_y: T", "[batch, time, outputs]", "Gradient of the loss with respect to y.")
    .Input("d_h: T", "[batch, outputs]", "The same of h.")
    .Input("d_c: T", "any", "The same of c.")
    .Input("activated: T", "[batch, time, width]", "As RecurrentSequence gave it.")
    .Input("y: T", "[batch, time, outputs]", "The same.")
    .Input("cells: float", "any", "The same.")
    .Input("products: float", "any", "The same.")
    .With(States)
    .Output("d_gates: T", "like activated", "Gradients of the gates.")
    .Output("d_products: T", "any",
            "For gru, or with a recurrent_gamma: those of the products with the state, [batch, "
            "time, width]. Else [0]: d_gates.")
    .Output("d_states: T", "any",
            "With a projection: of y through all that follows, [batch, time, outputs]; else [0].")
    .Output("d_initial_h: T", "like initial_h", "The gradient of initial_h.")
    .Output("d_initial_c: T", "like initial_c", "The gradient of initial_c.")
    .Output("d_recurrent_gamma: float", "any",
            "The gradient of recurrent_gamma by each sequence, [batch, width]; or [0].")
    .Output("d_cell_gamma: float", "any",
            "The gradient of cell_gamma likewise, [batch, units]; or [0].")
    .Output("d_cell_beta: float", "any", "The gradient of cell_beta likewise.")
    .Check(SetGradients)
    .NotDifferentiable();

}  // namespace
}  // namespace metal_ops
