// The gradient of an activation, from the tensor that TensorFlow's op for it takes: the output, or the input of
// LeakyRelu and of those that are several ops. One text for the shader and for the CPU's vectors. No guard: included
// within the namespace of an instruction set.

// sigmoid(x) and sigmoid(-x), of which neither is taken off 1: where x is large that would be all of
// the other.
template <typename V>
struct Sigmoids {
  V of, other;
};

template <typename V>
METAL_OPS_FORMULA Sigmoids<V> sigmoids(V x) {
  const V zero(0.0f), one(1.0f), e = precise_exp(select(-x, x, x < zero));
  const V large = one / (one + e), small = e * large;
  return {select(large, small, x < zero), select(small, large, x < zero)};
}

// Phi(x) + x phi(x), by the tail of EPILOGUE_TAIL_COEFFICIENTS, which keeps its digits.
template <typename V>
METAL_OPS_FORMULA V gelu_slope(V x) {
  const float coefficients[EPILOGUE_TAIL_TERMS] = EPILOGUE_TAIL_COEFFICIENTS;
  const V size = select(x, -x, x < V(0.0f)), one(1.0f);
  const V t = one / fma(V(EPILOGUE_TAIL_SCALE), size, one);
  V sum(coefficients[EPILOGUE_TAIL_TERMS - 1]);
  for (int i = EPILOGUE_TAIL_TERMS - 2; i >= 0; --i) sum = fma(sum, t, V(coefficients[i]));
  const V bell = precise_exp(V(-0.5f) * x * x), tail = bell * t * sum;
  return fma(x * bell, V(0.3989422804f), select(tail, one - tail, x > V(0.0f)));
}

// (1 + tanh(u)) / 2 is sigmoid(2 u).
template <typename V>
METAL_OPS_FORMULA V gelu_approximate_slope(V x) {
  const V one(1.0f), square = x * x;
  const V twice = V(1.5957691216f) * fma(V(0.044715f) * square, x, x);  // 2 sqrt(2 / pi)
  const V inner = V(1.5957691216f) * fma(V(0.134145f), square, one);
  const Sigmoids<V> s = sigmoids(twice);
  return fma(x * (s.of * s.other), inner, s.of);
}

// The derivative of x w, w = tanh(log(1 + e^x)) = n / (n + 2), n = e^x (e^x + 2): see
// EPILOGUE_MISH_LIMIT.
template <typename V>
METAL_OPS_FORMULA V mish_slope(V x) {
  const V one(1.0f), two(2.0f), limit(EPILOGUE_MISH_LIMIT);
  const V e = precise_exp(select(x, limit, x > limit)), n = e * (e + two);
  const V w = n / (n + two);
  const V slope = (two / (n + two)) * (one + w) * (e / (one + e));
  return select(fma(x, slope, w), one, x > limit);
}

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
    case BIAS_GRAD_SWISH: {
      const Sigmoids<V> s = sigmoids(feature);
      return gradient * (s.of * fma(feature, s.other, one));
    }
    case BIAS_GRAD_GELU_EXACT:
      return gradient * gelu_slope(feature);
    case BIAS_GRAD_GELU_APPROXIMATE:
      return gradient * gelu_approximate_slope(feature);
    case BIAS_GRAD_MISH:
      return gradient * mish_slope(feature);
    default:
      return select(zero, gradient, feature > zero);
  }
}
