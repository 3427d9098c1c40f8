// silu(gate) up and its derivatives: one text for the shader and for the CPU's vectors. No guard:
// included within the namespace of an instruction set.

// e^-x may be infinite, and its reciprocal then is 0.
template <typename V>
METAL_OPS_FORMULA V swiglu_sigmoid(V x) {
  return V(1.0f) / (V(1.0f) + precise_exp(-x));
}

template <typename V>
METAL_OPS_FORMULA V swiglu_value(V gate, V up) {
  return gate * swiglu_sigmoid(gate) * up;
}

template <typename V>
struct SwigluSlopes {
  V gate, up;
};

// silu'(x) = s (1 + x (1 - s)), s = sigmoid(x).
template <typename V>
METAL_OPS_FORMULA SwigluSlopes<V> swiglu_slopes(V d_y, V gate, V up) {
  const V s = swiglu_sigmoid(gate);
  return {d_y * up * (s * fma(gate, V(1.0f) - s, V(1.0f))), d_y * (gate * s)};
}
