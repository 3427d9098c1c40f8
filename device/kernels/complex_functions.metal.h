// Functions of complex numbers, as C99's Annex G has them at infinities, NaN and on both sides of cuts, and without
// overflow on the way to a result that is a float. Real and imaginary parts by W. Kahan 1987, "Branch cuts for
// complex elementary functions".

#ifndef METAL_OPS_DEVICE_KERNELS_COMPLEX_FUNCTIONS_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_COMPLEX_FUNCTIONS_METAL_H_

#include <metal_stdlib>

#include "device/kernels/arc.metal.h"
#include "device/kernels/complex.metal.h"
#include "kernels/msl/exp_log.h"

// For a real part above 88 the exponential is exp(x - 44.25) exp(44.25), multiplied by a sine or cosine in
// between.
#define COMPLEX_WIDE 88.0f
#define COMPLEX_SHIFT 44.25f
#define COMPLEX_SHIFT_POWER 1.65017812e19f
// From this size on inverse functions are logarithms and angles: the roots' part is below a float's precision.
#define COMPLEX_FAR 1e10f

// Without branches and calls, as all that follows: a compiler for processors runs several elements at a time.
inline bool is_infinite(float x) { return metal::abs(x) == INFINITY; }
inline bool is_finite(float x) { return metal::abs(x) < INFINITY; }
inline bool nothing(float2 x) { return (x.x == 0.0f) & (x.y == 0.0f); }
inline bool infinite(float2 x) {
  const bool a = is_infinite(x.x), b = is_infinite(x.y);
  return a | b;
}
inline bool no_number(float2 x) { return (x.x != x.x) | (x.y != x.y); }
inline bool all_finite(float2 x) {
  const bool a = is_finite(x.x), b = is_finite(x.y);
  return a & b;
}
// An infinite size at an angle that is none.
inline bool no_angle(float size, float angle) {
  const bool a = is_infinite(size), b = is_finite(angle);
  return a & !b;
}
// A zero beside a part that is none.
inline bool bare(float zero, float part) {
  const bool b = is_finite(part);
  return (zero == 0.0f) & !b;
}
inline float largest_part(float2 x) {
  const float a = metal::abs(x.x), b = metal::abs(x.y);
  return a > b ? a : b;
}
// An infinite part is 1 and another one 0, with their signs.
inline float2 direction(float2 x) {
  const float a = is_infinite(x.x) ? 1.0f : 0.0f, b = is_infinite(x.y) ? 1.0f : 0.0f;
  return float2(metal::copysign(a, x.x), metal::copysign(b, x.y));
}

// `over`, except for terms that it would lose: a ratio of b's parts that is no float, parts near the ends of the
// range.
METAL_FUNC float2 quotient_in_range(float2 a, float2 b) {
  const bool wide = metal::abs(b.x) >= metal::abs(b.y);
  const float large = wide ? b.x : b.y, small = wide ? b.y : b.x;
  const float ratio = small / large, whole = large + small * ratio;
  const float near_x = wide ? a.x : a.y, near_y = wide ? a.y : a.x;
  const bool lost = (ratio == 0.0f) & (small != 0.0f);
  const float cross_y = lost ? small * (near_y / large) : near_y * ratio;
  const float cross_x = lost ? small * (near_x / large) : near_x * ratio;
  const float real = (near_x + cross_y) / whole, other = (near_y - cross_x) / whole;
  return float2(real, wide ? other : -other);
}
// Annex G.5.1: a number that is not zero by zero is infinite, a finite one by an infinite one is zero.
METAL_FUNC float2 quotient(float2 a, float2 b) {
  const float size = largest_part(b);
  const float below = size > 1e38f ? 0.25f : size < 1e-30f ? 0x1p60f : 1.0f;
  const float above = largest_part(a) > 1e38f ? 0.25f : 1.0f;
  const float2 scaled = float2(a.x * above, a.y * above);
  const float2 part = quotient_in_range(scaled, float2(b.x * below, b.y * below));
  const float back = below * (above == 1.0f ? 1.0f : 4.0f);
  const float real = part.x * back, imaginary = part.y * back;
  const bool lost = (real != real) & (imaginary != imaginary), none = nothing(b);
  const bool a_ends = infinite(a), b_ends = infinite(b), a_is = all_finite(a), b_is = all_finite(b);
  const bool grows = a_ends & b_is, shrinks = b_ends & a_is;
  const float2 far_a = direction(a), far_b = direction(b);
  const float p = grows ? far_a.x : scaled.x, q = grows ? far_a.y : scaled.y;
  const float c = shrinks ? far_b.x : b.x, d = shrinks ? far_b.y : b.y;
  const float end = grows ? INFINITY : shrinks ? 0.0f : NAN, edge = metal::copysign(INFINITY, b.x);
  const float lost_x = end * (p * c + q * d), lost_y = end * (q * c - p * d);
  return float2(none   ? edge * a.x
                : lost ? lost_x
                       : real,
                none   ? edge * a.y
                : lost ? lost_y
                       : imaginary);
}
METAL_FUNC float2 reciprocal(float2 x) {
  const float2 found = quotient(float2(1.0f, 0.0f), x);
  return float2(found.x, found.y != found.y ? found.y : metal::copysign(found.y, -x.y));
}

// To the nearest axis where one part is infinite.
METAL_FUNC float2 sign_of(float2 x) {
  const float scale = largest_part(x) > 1e38f ? 0.25f : 1.0f;
  const float2 scaled = float2(x.x * scale, x.y * scale);
  const float size = magnitude(scaled);
  const bool axis = is_infinite(x.x) != is_infinite(x.y), none = nothing(x);
  const float2 along = direction(x);
  const float real = scaled.x / size, imaginary = no_number(x) ? NAN : scaled.y / size;
  return float2(none ? 0.0f : axis ? along.x : real, none ? 0.0f : axis ? along.y : imaginary);
}

METAL_FUNC float2 exponential(float2 x) {
  const bool wide = x.x > COMPLEX_WIDE, ends = no_angle(x.x, x.y);
  const float size = metal::exp(wide ? x.x - COMPLEX_SHIFT : x.x);
  const float more = wide ? COMPLEX_SHIFT_POWER : 1.0f;
  const float cosine = metal::cos(x.y), sine = metal::sin(x.y);
  const float c = ends ? 1.0f : cosine, s = (ends & (x.x < 0.0f)) ? 1.0f : sine;
  return float2(size * c * more, x.y == 0.0f ? x.y : size * s * more);
}

// Near the unit circle by how far the square is from 1, the squares' rounding put back.
METAL_FUNC float2 logarithm(float2 x) {
  using namespace metal;
  const float large = max(abs(x.x), abs(x.y)), small = min(abs(x.x), abs(x.y));
  const float a = large * large, b = small * small;
  const float far = (a - 1.0f + b) + (fma(large, large, -a) + fma(small, small, -b));
  const float part = ((large == 0.0f) | (large == INFINITY)) ? 0.0f : small / large;
  const bool near = abs(far) < 0.5f;
  const float rest = 0.5f * precise_log1p(near ? far : part * part), first = log(large);
  const float real = near ? rest : first + rest;
  // Added: behind a choice a compiler would calculate the rest in a branch.
  const bool ends = infinite(x), none = no_number(x) & !ends;
  return float2(real + (none ? NAN : 0.0f), arc_tangent_2(x.y, x.x));
}

// The root whose real part is not negative.
METAL_FUNC float2 root_in_range(float2 x) {
  using namespace metal;
  const float size = magnitude(x), half_size = sqrt(0.5f * (size + abs(x.x)));
  const float other = half_size == 0.0f ? 0.0f : 0.5f * abs(x.y) / half_size;
  return float2(x.x >= 0.0f ? half_size : other, copysign(x.x >= 0.0f ? other : half_size, x.y));
}
METAL_FUNC float2 root(float2 x) {
  using namespace metal;
  const float size = largest_part(x);
  const bool large = size > 1e38f, small = size < 1e-30f;
  const float less = large ? 0.25f : small ? 0x1p60f : 1.0f;
  const float more = large ? 2.0f : small ? 0x1p-30f : 1.0f;
  const float2 found = root_in_range(float2(x.x * less, x.y * less));
  // For an infinite imaginary part both are infinite, for a real one the root's or the other.
  const bool up = is_infinite(x.y), level = is_infinite(x.x), along = level & !up,
             right = x.x > 0.0f;
  const float flat = x.y != x.y ? x.y : 0.0f, real = right ? INFINITY : flat;
  const float imaginary = copysign(right ? flat : INFINITY, x.y);
  return float2(up      ? INFINITY
                : along ? real
                        : found.x * more,
                up      ? x.y
                : along ? imaginary
                        : found.y * more);
}

// i x and -i x: circular functions are hyperbolic ones of these.
inline float2 turned(float2 x) { return float2(-x.y, x.x); }
inline float2 turned_back(float2 x) { return float2(x.y, -x.x); }

// sinh(|x|) and cosh(x) by one exponential, and a factor that both lack where they may be no floats.
struct Hyperbolic {
  float sine, cosine, more;
};
METAL_FUNC Hyperbolic hyperbolic(float x) {
  const float size = metal::abs(x);
  const bool wide = size > COMPLEX_WIDE;
  const float m = precise_expm1(wide ? size - COMPLEX_SHIFT : size), r = 1.0f / (m + 1.0f);
  Hyperbolic found;
  found.sine = 0.5f * (m + (m < 1e9f ? m * r : 1.0f));
  found.cosine = 0.5f * ((m + 1.0f) + r);
  found.more = wide ? COMPLEX_SHIFT_POWER : 1.0f;
  return found;
}
// Where the sign of an infinite part is not specified, it is positive, as in the C library on Linux.
METAL_FUNC float2 sine_h(float2 x) {
  const Hyperbolic h = hyperbolic(x.x);
  const float real = metal::copysign(h.sine, x.x) * metal::cos(x.y) * h.more;
  const float imaginary = h.cosine * metal::sin(x.y) * h.more;
  const float on_axis = bare(x.x, x.y) ? x.x : real;
  return float2(no_angle(x.x, x.y) ? INFINITY : on_axis, x.y == 0.0f ? x.y : imaginary);
}
METAL_FUNC float2 sine(float2 x) {
  const float2 found = turned_back(sine_h(turned(x)));
  return float2(found.x, no_angle(x.y, x.x) ? INFINITY : found.y);
}
METAL_FUNC float2 cosine_h(float2 x) {
  const Hyperbolic h = hyperbolic(x.x);
  const bool ends = no_angle(x.x, x.y);
  const float real = h.cosine * (ends ? 1.0f : metal::cos(x.y)) * h.more;
  const float imaginary = metal::copysign(h.sine, x.x) * metal::sin(x.y) * h.more;
  const bool beside = bare(x.x, x.y), none = (x.y == 0.0f) | beside;
  const float sign = metal::copysign(1.0f, x.x) * metal::copysign(0.0f, x.y);
  return float2(real, none ? sign : imaginary);
}
METAL_FUNC float2 tangent_h(float2 x) {
  using namespace metal;
  const float size = abs(x.x), s = sin(x.y), c = cos(x.y), t = s / c;
  const Hyperbolic h = hyperbolic(size > 10.0f ? 0.0f : x.x);
  const float sine = copysign(h.sine, x.x), beta = 1.0f + t * t, below = 1.0f + beta * sine * sine;
  const bool ends = no_angle(x.x, x.y);
  const float rest = ends ? copysign(0.0f, x.y) : 4.0f * s * c * exp(-2.0f * size);
  const float2 near = float2(beta * h.cosine * sine / below, t / below);
  const bool whole = is_finite(x.y), one = (size > 10.0f) & ((size == INFINITY) | whole);
  return float2(one           ? copysign(1.0f, x.x)
                : x.x == 0.0f ? x.x
                              : near.x,
                size > 10.0f  ? rest
                : x.y == 0.0f ? x.y
                              : near.y);
}

inline bool far_away(float2 x) {
  return !(metal::abs(x.x) < COMPLEX_FAR && metal::abs(x.y) < COMPLEX_FAR);
}
// log(2 |x|), with the sign of y.
inline float far_height(float2 x, float y) {
  return metal::copysign(logarithm(x).x + EXP_LOG_LN2, y);
}
inline float2 arc_sine_of(float2 x) {
  using namespace metal;
  const float2 less = root(float2(1.0f - x.x, -x.y)), more = root(float2(1.0f + x.x, x.y));
  const bool far = far_away(x);
  const float height = far ? far_height(x, x.y) : asinh(times(conjugate(less), more).y);
  const float angle = arc_tangent_2(x.x, far ? abs(x.y) : times(less, more).x);
  return float2(x.x == 0.0f ? x.x : angle, height);
}
inline float2 arc_cosine_of(float2 x) {
  using namespace metal;
  const float2 less = root(float2(1.0f - x.x, -x.y)), more = root(float2(1.0f + x.x, x.y));
  const bool far = far_away(x);
  const float height = far ? -far_height(x, x.y) : asinh(times(conjugate(more), less).y);
  const float angle = far ? arc_tangent_2(abs(x.y), x.x) : 2.0f * arc_tangent_2(less.x, more.x);
  return float2(((x.x == 0.0f) & (x.y != x.y)) ? ARC_HALF : angle, height);
}
inline float2 arc_cosine_h(float2 x) {
  const float2 found = arc_cosine_of(x);
  return float2(metal::abs(found.y), metal::copysign(found.x, x.y));
}
inline float2 arc_tangent_h(float2 x) {
  using namespace metal;
  const float size = abs(x.x), less = 1.0f - size, gap = magnitude(float2(less, x.y));
  float real, angle;
  if (far_away(x)) {
    real = infinite(x) ? 0.0f : quotient(float2(1.0f, 0.0f), x).x;
    angle = x.y != x.y || (x.x != x.x && !isinf(x.y)) ? NAN : ARC_HALF;
  } else {
    // At 1 the square of the gap would be no float.
    real = gap < 1e-9f ? 0.5f * (EXP_LOG_LN2 - log(gap))
                       : 0.25f * precise_log1p(4.0f * size / gap / gap);
    angle = 0.5f * arc_tangent_2(2.0f * x.y, less * (1.0f + size) - x.y * x.y);
  }
  return float2(x.x == 0.0f ? x.x : copysign(real, x.x), copysign(angle, x.y));
}
// At infinities and NaN as NumPy and TensorFlow's CPU have it: the standard has no such function.
METAL_FUNC float2 exponential_less_1(float2 x) {
  using namespace metal;
  const float half_sine = sin(0.5f * x.y);
  const float real = precise_expm1(x.x) * cos(x.y) - 2.0f * half_sine * half_sine;
  const float imaginary = ((x.y == 0.0f) & (x.x == x.x)) ? x.y : exp(x.x) * sin(x.y);
  return x.x > COMPLEX_WIDE && all_finite(x) ? exponential(x) : float2(real, imaginary);
}
inline float2 logarithm_of_1_and(float2 x) {
  const float square = x.y * x.y, rounded = metal::fma(x.y, x.y, -square);
  const float far = metal::fma(x.x, x.x, rounded) + (2.0f * x.x + square);
  if (!(metal::abs(far) < 0.5f)) return logarithm(float2(1.0f + x.x, x.y));
  return float2(0.5f * precise_log1p(far), arc_tangent_2(x.y, 1.0f + x.x));
}
// By the smaller exponential, which does not overflow.
METAL_FUNC float2 sigmoid(float2 x) {
  const float2 small = exponential(x.x < 0.0f ? x : float2(-x.x, -x.y));
  const float2 below = float2(1.0f + small.x, small.y);
  return over(x.x < 0.0f ? small : float2(1.0f, 0.0f), below);
}
METAL_FUNC float2 power(float2 a, float2 b) {
  // For zero as on TensorFlow's CPU.
  if (nothing(a)) return b.x > 0.0f ? float2(0.0f) : float2(b.x < 0.0f ? INFINITY : NAN, NAN);
  return exponential(times(b, logarithm(a)));
}

#endif  // METAL_OPS_DEVICE_KERNELS_COMPLEX_FUNCTIONS_METAL_H_
