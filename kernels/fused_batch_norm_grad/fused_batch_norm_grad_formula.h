// The gradient of a batch norm behind which is a ReLU: one text for the shader and for the CPU's
// vectors. No guard: included within the namespace of an instruction set.

// The gradient that passes ReLU, or ReLU6, which gave `feature`.
template <typename V>
METAL_OPS_FORMULA V norm_grad_passed(V gradient, V feature, bool relu6) {
  const V zero(0.0f), passed = select(zero, gradient, feature > zero);
  return relu6 ? select(zero, passed, feature < V(6.0f)) : passed;
}

// The factor of a channel's elements, and the number subtracted from them.
template <typename V>
struct NormGradFactors {
  V by, mean, slope;
};

// The sums are those of the gradients that passed, and of their products with x - mean; `count`
// elements are in each, infinitely many where the moments are constants.
template <typename V>
METAL_OPS_FORMULA NormGradFactors<V> norm_grad_factors(V sum, V product, V scale, V inverse,
                                                       float count) {
  return {scale * inverse, sum / V(count), inverse * inverse * product / V(count)};
}

template <typename V>
METAL_OPS_FORMULA V norm_grad_slope(V passed, V distance, V by, V mean, V slope) {
  return by * (passed - mean - distance * slope);
}
