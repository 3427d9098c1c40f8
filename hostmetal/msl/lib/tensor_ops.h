// <MetalPerformancePrimitives/MetalPerformancePrimitives.h>: matmul2d on tensors and cooperative tensors.
#pragma once

#include "tensor_product.h"

namespace mpp {
namespace tensor_ops {

template <class T>
constexpr T dynamic_length_v = metal::numeric_limits<T>::max();

enum class reduction_operation { sum, max, min };

template <class T>
struct reduction_operation_identity {
  static constexpr T sum_identity = T(0);
  static constexpr T max_identity = metal::numeric_limits<T>::lowest();
  static constexpr T min_identity = metal::numeric_limits<T>::max();
};

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };

  int m, n, k;
  bool transpose_left, transpose_right;
  bool relaxed_precision;
  mode matmul_mode;

  constexpr matmul2d_descriptor(int rows, int columns, int depth = int(metal::dynamic_extent),
                                bool left_turned = false, bool right_turned = false,
                                bool relaxed = false, mode how = mode::multiply)
      : m(rows),
        n(columns),
        k(depth),
        transpose_left(left_turned),
        transpose_right(right_turned),
        relaxed_precision(relaxed),
        matmul_mode(how) {}
};

}  // namespace tensor_ops
}  // namespace mpp

namespace _msl {

using Product = mpp::tensor_ops::matmul2d_descriptor;
constexpr bool is_dynamic(int k) {
  return k == int(metal::dynamic_extent) || k == mpp::tensor_ops::dynamic_length_v<int>;
}

// ---- the kinds of operands
template <class T>
struct OperandOf {
  static constexpr bool known = false, cooperative = false;
};
template <class T, class E, class D, class... Tags>
struct OperandOf<metal::tensor<T, E, D, Tags...>> {
  static constexpr bool known = true, cooperative = false;
  typedef typename metal::tensor<T, E, D, Tags...>::value_type value_type;
};
template <class T, class E, class L>
struct OperandOf<metal::cooperative_tensor<T, E, L>> {
  static constexpr bool known = true, cooperative = true;
  typedef T value_type;
  typedef L layout;
};
template <class T>
using operand_value = typename OperandOf<plain<T>>::value_type;

// The combinations that Metal 4 names. Bytes: int8_t and uint8_t.
template <class T>
constexpr bool is_byte = __is_same(T, int8_t) || __is_same(T, char) || __is_same(T, uint8_t);
template <class T>
constexpr bool is_small_float = __is_same(T, half) || __is_same(T, bfloat);
template <class L, class R, class D>
constexpr bool multiplies() {
  constexpr bool floats =
      (is_small_float<L> || __is_same(L, float)) && (is_small_float<R> || __is_same(R, float));
  if constexpr (is_four_bits<L>) {
    return false;
  } else if constexpr (is_four_bits<R>) {
    if constexpr (__is_same(D, int32_t))
      return is_byte<L> && __is_same(L, uint8_t) == __is_same(R, metal::uint4b_format);
    else
      return is_small_float<L> && (__is_same(D, float) || __is_same(D, L));
  } else if constexpr (__is_same(D, int32_t)) {
    return is_byte<L> && is_byte<R> && (__is_same(L, uint8_t) == __is_same(R, uint8_t));
  } else if constexpr (__is_same(D, float)) {
    return floats || (is_byte<L> && !is_byte<R> && (is_small_float<R> || __is_same(R, float))) ||
           (is_byte<R> && (is_small_float<L> || __is_same(L, float)));
  } else if constexpr (is_small_float<D>) {
    if constexpr (is_byte<L>)
      return __is_same(R, D);
    else if constexpr (is_byte<R>)
      return __is_same(L, D);
    else if constexpr (!is_small_float<L> || !is_small_float<R>)
      return false;
    else
      return !__is_same(L, R) || __is_same(L, D);
  } else {
    return false;
  }
}

// The operands of a lane, for the one that computes.
struct OperandSlot {
  const void* left;
  const void* right;
  void* destination;
  unsigned simdgroup;
};
template <class Tensor>
inline auto operand(const OperandSlot* slots, unsigned mask, const void* OperandSlot::* which) {
  const unsigned first = unsigned(__builtin_ctz(mask));
  typedef OperandOf<Tensor> Kind;
  typedef typename Kind::value_type T;
  if constexpr (Kind::cooperative) {
    WithLanes<T, typename Kind::layout> all{};
    all.simdgroup = slots[first].simdgroup;
    for (unsigned m = mask; m; m &= m - 1) {
      const unsigned lane = unsigned(__builtin_ctz(m));
      all.elements[lane] = &(*(Tensor*)const_cast<void*>(slots[lane].*which))[0];
    }
    return all;
  } else {
    const auto& tensor = *(const Tensor*)(slots[first].*which);
    typedef metal::conditional_t<is_four_bits<T>, int8_t, T> Stored;
    return InMemory<Stored, decltype(tensor._msl_data())>::of(tensor);
  }
}
template <Product P, class Left, class Right, class Destination, int Simdgroups>
inline void multiply_tensors(const OperandSlot* slots, unsigned mask) {
  const auto left = operand<Left>(slots, mask, &OperandSlot::left);
  const auto right = operand<Right>(slots, mask, &OperandSlot::right);
  OperandSlot to[kSimdWidth];
  for (unsigned m = mask; m; m &= m - 1)
    to[__builtin_ctz(m)].left = slots[__builtin_ctz(m)].destination;
  const unsigned first = unsigned(__builtin_ctz(mask));
  to[first].simdgroup = slots[first].simdgroup;
  const auto destination = operand<Destination>(to, mask, &OperandSlot::left);
  int depth = is_dynamic(P.k) ? 0x7fffffff : P.k;
  if constexpr (!OperandOf<Left>::cooperative)
    depth = metal::min(depth, P.transpose_left ? left.rows : left.columns);
  if constexpr (!OperandOf<Right>::cooperative)
    depth = metal::min(depth, P.transpose_right ? right.columns : right.rows);
  typedef typename OperandOf<Destination>::value_type D;
  typedef metal::conditional_t<__is_same(D, int32_t), int, float> Sum;
  each_rectangle<Fragments<P.m, P.n, Simdgroups>>(
      slots[first].simdgroup, [&](int row, int column, int rows, int columns) {
        multiply_rectangle<Sum>(left, P.transpose_left, right, P.transpose_right, destination,
                                P.matmul_mode == Product::mode::multiply_accumulate, row, column,
                                rows, columns, depth);
      });
}
// The work of all lanes, by a simdgroup's slots.
template <class Slot, void (*work)(const Slot*, unsigned)>
void with_slots(Slots slots, unsigned mask) {
  Slot all[kSimdWidth];
  for (unsigned m = mask; m; m &= m - 1) {
    const unsigned lane = unsigned(__builtin_ctz(m));
    all[lane] = get<Slot>(slots[0] + lane);
  }
  work(all, mask);
}

// ---- reductions
struct ReductionSlot {
  const void* source;
  void* destination;
};
template <class T>
inline T reduced(T a, T b, mpp::tensor_ops::reduction_operation op) {
  using mpp::tensor_ops::reduction_operation;
  if (op == reduction_operation::sum) return T(a + b);
  return op == reduction_operation::max ? metal::max(a, b) : metal::min(a, b);
}
struct ReductionHow {
  const void* source;
  void* destination;
  mpp::tensor_ops::reduction_operation op;
  float identity;
};
template <class Source, class Destination, int Of>
inline void reduce_tensors(const ReductionHow* slots, unsigned mask) {
  typedef typename Source::layout From;
  typedef typename Destination::layout To;
  typedef typename Source::element_type T;
  const ReductionHow& how = slots[__builtin_ctz(mask)];
  T sums[To::length];
  for (int n = 0; n < To::length; ++n) sums[n] = T(how.identity);
  for (int row = 0; row < From::rows; ++row) {
    for (int column = 0; column < From::columns; ++column) {
      unsigned lane = 0, i = unsigned(row * From::columns + column);
      if constexpr (From::simdgroups) {
        const LaneMap& map = _msl_lane_map;
        const int side = int(map.side), place = row % side * side + column % side;
        lane = map.lane[place];
        i = unsigned(row / side * fragments_in(From::columns, map.side) + column / side) *
                map.elements +
            map.element[place];
      }
      if (!(mask >> lane & 1)) continue;
      const T value = (*(const Source*)slots[lane].source)[i];
      T& sum = sums[Of ? row : column];
      sum = reduced(sum, value, how.op);
    }
  }
  for (unsigned m = mask; m; m &= m - 1) {
    const unsigned lane = unsigned(__builtin_ctz(m));
    auto& to = *(Destination*)slots[lane].destination;
    for (unsigned i = 0; i < To::capacity(); ++i) {
      const auto at = To::at(0, lane, i);
      if (To::holds(at)) to[i] = sums[at[0]];
    }
  }
}

}  // namespace _msl

namespace mpp {
namespace tensor_ops {

template <matmul2d_descriptor Descriptor, class Scope, class... Arguments>
class matmul2d {
  static_assert(
      metal::is_execution_thread_v<Scope> || metal::is_execution_simdgroups_v<Scope>,
      "matmul2d: the scope is execution_thread, execution_simdgroup or execution_simdgroups<N>");
  static_assert(sizeof...(Arguments) == 0, "matmul2d: arguments behind the scope are not there");
  static_assert(Descriptor.m > 0 && Descriptor.n > 0 && Descriptor.m < 1 << 15 &&
                    Descriptor.n < 1 << 15,
                "matmul2d_descriptor: m and n are the size of a tile, positive numbers");
  static_assert(Descriptor.k > 0 || _msl::is_dynamic(Descriptor.k),
                "matmul2d_descriptor: k is positive, dynamic_length_v<int> or "
                "static_cast<int>(dynamic_extent)");

  static constexpr int kSimdgroups =
      metal::is_execution_thread_v<Scope> ? 0 : int(Scope::static_size);
  template <class T, int rows, int columns, class Coordinate>
  using Matrix = metal::cooperative_tensor<T, metal::extents<Coordinate, columns, rows>,
                                           _msl::Fragments<rows, columns, kSimdgroups>>;
  static constexpr int kDepth = _msl::is_dynamic(Descriptor.k) ? 1 : Descriptor.k;

 public:
  static constexpr matmul2d_descriptor descriptor = Descriptor;
  using scope = Scope;

  template <class Left, class Right, class T, class Coordinate = int>
  using cooperative_tensor_left_input_t =
      Matrix<Left, Descriptor.transpose_left ? kDepth : Descriptor.m,
             Descriptor.transpose_left ? Descriptor.m : kDepth, Coordinate>;
  template <class Left, class Right, class T, class Coordinate = int>
  using cooperative_tensor_right_input_t =
      Matrix<Right, Descriptor.transpose_right ? Descriptor.n : kDepth,
             Descriptor.transpose_right ? kDepth : Descriptor.n, Coordinate>;
  template <class Left, class Right, class T, class Coordinate = int>
  using cooperative_tensor_destination_t = Matrix<T, Descriptor.m, Descriptor.n, Coordinate>;
  template <class Left, class Right, class T, class Coordinate = int>
  using cooperative_tensor_row_reduction_destination_t = metal::cooperative_tensor<
      T, metal::extents<Coordinate, Descriptor.m>,
      _msl::Reduced<_msl::Fragments<Descriptor.m, Descriptor.n, kSimdgroups>, 1>>;
  template <class Left, class Right, class T, class Coordinate = int>
  using cooperative_tensor_column_reduction_destination_t = metal::cooperative_tensor<
      T, metal::extents<Coordinate, Descriptor.n>,
      _msl::Reduced<_msl::Fragments<Descriptor.m, Descriptor.n, kSimdgroups>, 0>>;

  template <class Left, class Right, class T, class Coordinate = int>
  cooperative_tensor_left_input_t<Left, Right, T, Coordinate> get_left_input_cooperative_tensor()
      const {
    input<Left, Right, T>();
    return {};
  }
  template <class Left, class Right, class T, class Coordinate = int>
  cooperative_tensor_right_input_t<Left, Right, T, Coordinate> get_right_input_cooperative_tensor()
      const {
    input<Left, Right, T>();
    return {};
  }
  // A destination of another product as an operand of this: both lie with the lanes in one way.
  template <class Left, class Right, class T, class Coordinate = int, class S, class X, class L>
  cooperative_tensor_left_input_t<Left, Right, T, Coordinate> get_left_input_cooperative_tensor(
      const thread metal::cooperative_tensor<S, X, L>& source) const {
    input<Left, Right, T>();
    static_assert(!Descriptor.transpose_left,
                  "an input made of a destination cannot be transposed");
    return copied<cooperative_tensor_left_input_t<Left, Right, T, Coordinate>>(source);
  }
  template <class Left, class Right, class T, class Coordinate = int, class S, class X, class L>
  cooperative_tensor_right_input_t<Left, Right, T, Coordinate> get_right_input_cooperative_tensor(
      const thread metal::cooperative_tensor<S, X, L>& source) const {
    input<Left, Right, T>();
    static_assert(!Descriptor.transpose_right,
                  "an input made of a destination cannot be transposed");
    return copied<cooperative_tensor_right_input_t<Left, Right, T, Coordinate>>(source);
  }
  template <class Left, class Right, class T, class S, class X, class L>
  bool is_compatible_as_left_input(const thread metal::cooperative_tensor<S, X, L>&) const {
    return metal::is_same_v<S, Left> && !Descriptor.transpose_left &&
           metal::is_same_v<L, typename cooperative_tensor_left_input_t<Left, Right, T>::layout>;
  }
  template <class Left, class Right, class T, class S, class X, class L>
  bool is_compatible_as_right_input(const thread metal::cooperative_tensor<S, X, L>&) const {
    return metal::is_same_v<S, Right> && !Descriptor.transpose_right &&
           metal::is_same_v<L, typename cooperative_tensor_right_input_t<Left, Right, T>::layout>;
  }
  // Its elements are zeros: kernels add products to a destination that they set to nothing.
  template <class Left, class Right, class T, class Coordinate = int>
  cooperative_tensor_destination_t<Left, Right, T, Coordinate> get_destination_cooperative_tensor()
      const {
    destination<Left, Right, T>();
    return {};
  }
  template <class Left, class Right, class T, class Coordinate = int>
  cooperative_tensor_row_reduction_destination_t<Left, Right, T, Coordinate>
  get_row_reduction_destination_cooperative_tensor() const {
    return {};
  }
  template <class Left, class Right, class T, class Coordinate = int>
  cooperative_tensor_column_reduction_destination_t<Left, Right, T, Coordinate>
  get_column_reduction_destination_cooperative_tensor() const {
    return {};
  }

  template <class Left, class Right, class Destination>
  void run(thread Left& left, thread Right& right, thread Destination& to, MSL_SITE) const {
    typedef _msl::OperandOf<metal::remove_cv_t<Left>> L;
    typedef _msl::OperandOf<metal::remove_cv_t<Right>> R;
    typedef _msl::OperandOf<Destination> D;
    static_assert(L::known && R::known && D::known,
                  "run: operands are tensors or cooperative tensors");
    matrices<Left>(), matrices<Right>(), matrices<Destination>();
    values<typename L::value_type, typename R::value_type, typename D::value_type>();
    if constexpr (L::cooperative)
      same<L, cooperative_tensor_left_input_t<typename L::value_type, int, int>>();
    if constexpr (R::cooperative)
      same<R, cooperative_tensor_right_input_t<int, typename R::value_type, int>>();
    if constexpr (D::cooperative)
      same<D, cooperative_tensor_destination_t<int, int, typename D::value_type>>();
    if constexpr (L::cooperative || R::cooperative) fixed();
    using Slot = _msl::OperandSlot;
    constexpr auto work =
        &_msl::multiply_tensors<Descriptor, metal::remove_cv_t<Left>, metal::remove_cv_t<Right>,
                                Destination, kSimdgroups>;
    Slot slot{&left, &right, &to, 0};
    if constexpr (kSimdgroups == 0) {
      work(&slot, 1);
    } else {
      if constexpr (kSimdgroups > 1) {
        if (_msl_checked && _msl_simdgroup_count() != unsigned(kSimdgroups)) {
          _msl_assertion(
              "matmul2d: the threadgroup has another number of simdgroups than the scope "
              "execution_simdgroups<N>");
        }
        slot.simdgroup = _msl_simdgroup_number() % unsigned(kSimdgroups);
      }
      _msl::put(_msl_slot(), slot);
      _msl_simd(site, &_msl::with_slots<Slot, work>);
    }
  }

 private:
  template <class Tensor>
  static constexpr void matrices() {
    if constexpr (!_msl::OperandOf<metal::remove_cv_t<Tensor>>::cooperative)
      static_assert(Tensor::get_rank() == 2, "run: the operands' rank is 2");
  }
  template <class Left, class Right, class T>
  static constexpr void values() {
    static_assert(_msl::multiplies<Left, Right, T>(),
                  "matmul2d: Metal 4 has no product of elements of these types into this type");
  }
  static constexpr void fixed() {
    static_assert(kSimdgroups == 1,
                  "cooperative tensors as inputs need the scope execution_simdgroup");
    static_assert(!_msl::is_dynamic(Descriptor.k),
                  "cooperative tensors as inputs need a k that is a number");
  }
  template <class Left, class Right, class T>
  static constexpr void input() {
    values<Left, Right, T>();
    static_assert(!_msl::is_four_bits<Right>,
                  "a cooperative tensor of four bits is not there; give run a tensor of them");
    fixed();
  }
  template <class Left, class Right, class T>
  static constexpr void destination() {
    values<_msl::operand_value<Left>, _msl::operand_value<Right>, T>();
  }
  template <class Operand, class Own>
  static constexpr void same() {
    static_assert(metal::is_same_v<typename Operand::layout, typename Own::layout>,
                  "run: the cooperative tensor is of a product of another size or scope");
  }
  template <class To, class S, class X, class L>
  static To copied(const thread metal::cooperative_tensor<S, X, L>& source) {
    static_assert(metal::is_same_v<S, typename To::element_type>,
                  "an input made of a destination has the same type of elements");
    static_assert(metal::is_same_v<L, typename To::layout>,
                  "an input made of a destination has the same size and scope");
    To to;
    for (uint i = 0; i < L::capacity(); ++i) to[i] = source[i];
    return to;
  }
};

template <class T, class X, class Y, class L, class M>
inline void reduce_rows(thread metal::cooperative_tensor<T, X, L>& source,
                        thread metal::cooperative_tensor<T, Y, M>& destination,
                        reduction_operation op = reduction_operation::sum,
                        T identity = reduction_operation_identity<T>::sum_identity, MSL_SITE) {
  static_assert(
      _msl::maps_elements<M, L> && L::rank == 2 && M::length == L::rows,
      "reduce_rows: the destination is of get_row_reduction_destination_cooperative_tensor");
  typedef metal::cooperative_tensor<T, X, L> Source;
  typedef metal::cooperative_tensor<T, Y, M> Destination;
  const _msl::ReductionHow how{&source, &destination, op, float(identity)};
  if constexpr (L::simdgroups == 0) {
    _msl::reduce_tensors<Source, Destination, 1>(&how, 1);
  } else {
    _msl::put(_msl_slot(), how);
    _msl_simd(site,
              &_msl::with_slots<_msl::ReductionHow, &_msl::reduce_tensors<Source, Destination, 1>>);
  }
}
template <class T, class X, class Y, class L, class M>
inline void reduce_columns(thread metal::cooperative_tensor<T, X, L>& source,
                           thread metal::cooperative_tensor<T, Y, M>& destination,
                           reduction_operation op = reduction_operation::sum,
                           T identity = reduction_operation_identity<T>::sum_identity, MSL_SITE) {
  static_assert(_msl::maps_elements<M, L> && L::rank == 2 && M::length == L::columns,
                "reduce_columns: the destination is of "
                "get_column_reduction_destination_cooperative_tensor");
  typedef metal::cooperative_tensor<T, X, L> Source;
  typedef metal::cooperative_tensor<T, Y, M> Destination;
  const _msl::ReductionHow how{&source, &destination, op, float(identity)};
  if constexpr (L::simdgroups == 0) {
    _msl::reduce_tensors<Source, Destination, 0>(&how, 1);
  } else {
    _msl::put(_msl_slot(), how);
    _msl_simd(site,
              &_msl::with_slots<_msl::ReductionHow, &_msl::reduce_tensors<Source, Destination, 0>>);
  }
}
template <class T, class X, class L, class U, class Y, class M>
inline bool is_iterator_compatible(const thread metal::cooperative_tensor<T, X, L>&,
                                   const thread metal::cooperative_tensor<U, Y, M>&) {
  return _msl::maps_elements<M, L>;
}

}  // namespace tensor_ops
}  // namespace mpp
