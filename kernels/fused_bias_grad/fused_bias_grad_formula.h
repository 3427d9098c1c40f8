// The gradient of an activation, from what TensorFlow's op of it takes: the output, or the input of
// LeakyRelu. One text for the shader and for the CPU's vectors. No guard: included within the
// namespace of an instruction set.

template <int kActivation, typename V>
METAL_OPS_FORMULA V activation_gradient(V gradient, V feature, float alpha) {
  const V zero(0.0f), one(1.0f);
  switch (kActivation) {
    case BIAS_GRAD_RELU6:
      return select(zero, gradient, feature > zero && feature < V(6.0f));
    case BIAS_GRAD_ELU:
      return select(gradient, gradient * (feature + one), feature < zero);
    case BIAS_GRAD_LEAKY_RELU:
      return select(gradient * V(alpha), gradient, feature > zero);
    case BIAS_GRAD_SIGMOID:
      return gradient * feature * (one - feature);
    case BIAS_GRAD_TANH:
      return gradient * (one - feature * feature);
    default:
      return select(zero, gradient, feature > zero);
  }
}
