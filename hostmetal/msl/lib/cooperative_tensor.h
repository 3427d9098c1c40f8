// <metal_cooperative_tensor>: matrices whose elements lie with the threads of one or more simdgroups. A matrix is cut into square
// fragments, row after row; the lane map says which lane has which elements of a fragment (HOSTMETAL_LANE_MAP).
#pragma once

#include "tensor.h"

MSL_HIDDEN unsigned _msl_simdgroup_number();  // of the running thread in its threadgroup
MSL_HIDDEN unsigned _msl_simdgroup_count();   // in that

namespace _msl {

constexpr unsigned kLargestFragment = 16;
constexpr unsigned kMostElements = kLargestFragment * kLargestFragment / kSimdWidth;

// The compiler writes it into each source that has tensors (lane_map.py).
struct LaneMap {
  unsigned side, elements;  // of a fragment; a lane's elements of one
  unsigned rows, columns;   // how many different ones a lane has of a fragment
  unsigned run;             // elements that are neighbours in a row
  unsigned char row[kSimdWidth][kMostElements], column[kSimdWidth][kMostElements];
  unsigned char lane[kLargestFragment * kLargestFragment];  // by row * side + column
  unsigned char element[kLargestFragment * kLargestFragment];
  unsigned char row_of[kMostElements], column_of[kMostElements];  // among the lane's rows, columns
};
extern "C" __attribute__((visibility("hidden"))) const LaneMap _msl_lane_map;

constexpr int fragments_in(int n, unsigned side) { return (n + int(side) - 1) / int(side); }

// A matrix of Rows x Columns over Simdgroups simdgroups; 0: all of it lies with one thread.
template <int Rows, int Columns, int Simdgroups>
struct Fragments {
  static constexpr int rows = Rows, columns = Columns, simdgroups = Simdgroups;
  static constexpr int each(unsigned side) {
    const int all = fragments_in(Rows, side) * fragments_in(Columns, side);
    return Simdgroups ? (all + Simdgroups - 1) / Simdgroups : 0;
  }
  static constexpr int capacity_of(unsigned side) {
    return Simdgroups ? each(side) * int(side * side / kSimdWidth) : Rows * Columns;
  }
  static constexpr int largest = capacity_of(16) > capacity_of(8) ? capacity_of(16)
                                                                  : capacity_of(8);
  static constexpr size_t rank = 2;
  typedef metal::array<int, 2> Index;

  static unsigned capacity() { return unsigned(capacity_of(_msl_lane_map.side)); }
  static unsigned simdgroup() {
    if constexpr (Simdgroups > 1)
      return _msl_simdgroup_number() % Simdgroups;
    else
      return 0;
  }
  static unsigned lane() {
    if constexpr (Simdgroups)
      return _msl_lane();
    else
      return 0;
  }
  // Where element i of a lane lies in the matrix: column, row.
  static Index at(unsigned simdgroup, unsigned lane, unsigned i) {
    if constexpr (!Simdgroups) {
      return {int(i) % Columns, int(i) / Columns};
    } else {
      const LaneMap& map = _msl_lane_map;
      const int across = fragments_in(Columns, map.side);
      const int square = int(simdgroup) * each(map.side) + int(i / map.elements);
      return {square % across * int(map.side) + map.column[lane][i % map.elements],
              square / across * int(map.side) + map.row[lane][i % map.elements]};
    }
  }
  static bool holds(const Index& at) { return at[0] < Columns && at[1] < Rows; }
  static Index mine(unsigned i) { return at(simdgroup(), lane(), i); }
};

// Results of reductions. A lane has those of the rows (the parameter is 1), or columns, in which it has elements.
template <class Matrix, int Of>
struct Reduced {
  static_assert(
      Matrix::simdgroups <= 1,
      "reductions of a matrix over several simdgroups are not there: use execution_simdgroup");
  static constexpr int length = Of ? Matrix::rows : Matrix::columns;
  static constexpr int largest = Matrix::simdgroups ? fragments_in(length, 8) * 4 : length;
  static constexpr size_t rank = 1;
  typedef metal::array<int, 1> Index;

  static unsigned in_fragment() { return Of ? _msl_lane_map.rows : _msl_lane_map.columns; }
  static unsigned capacity() {
    if constexpr (!Matrix::simdgroups)
      return length;
    else
      return unsigned(fragments_in(length, _msl_lane_map.side)) * in_fragment();
  }
  static unsigned simdgroup() { return 0; }
  static unsigned lane() { return Matrix::lane(); }
  static Index at(unsigned, unsigned lane, unsigned i) {
    if constexpr (!Matrix::simdgroups) {
      return {int(i)};
    } else {
      const LaneMap& map = _msl_lane_map;
      const unsigned n = i % in_fragment();
      unsigned e = 0;
      while ((Of ? map.row_of : map.column_of)[e] != n) ++e;
      return {int(i / in_fragment() * map.side) + (Of ? map.row : map.column)[lane][e]};
    }
  }
  static bool holds(const Index& at) { return at[0] < length; }
  static Index mine(unsigned i) { return at(0, lane(), i); }
  // The element for element i of a matrix whose rows, or columns, are these.
  template <class Other>
  static unsigned for_element(unsigned i) {
    if constexpr (!Matrix::simdgroups) {
      const int n = Of ? int(i) / Other::columns : int(i) % Other::columns;
      return unsigned(n);
    } else {
      const LaneMap& map = _msl_lane_map;
      const unsigned across = unsigned(fragments_in(Other::columns, map.side));
      const unsigned square = i / map.elements, e = i % map.elements;
      const unsigned n = Of ? square / across : square % across;
      return n * in_fragment() + (Of ? map.row_of : map.column_of)[e];
    }
  }
};

template <class To, class From>
constexpr bool maps_elements = __is_same(To, From);
template <class M, int Of, int Rows, int Columns, int S>
constexpr bool maps_elements<Reduced<M, Of>, Fragments<Rows, Columns, S>> =
    M::simdgroups == S && Reduced<M, Of>::length == (Of ? Rows : Columns);

}  // namespace _msl

namespace metal {

template <class ElementType, class Extents, class Layout>
class cooperative_tensor;

// An element of a thread's part of a cooperative tensor.
template <class Tensor>
class cooperative_tensor_iterator {
 public:
  cooperative_tensor_iterator(thread Tensor* of, uint i) : _of(of), _i(i) {}
  thread auto& operator*() const { return (*_of)[_i]; }
  thread auto* operator->() const { return &(*_of)[_i]; }
  thread cooperative_tensor_iterator& operator++() {
    ++_i;
    return *this;
  }
  cooperative_tensor_iterator operator++(int) {
    const cooperative_tensor_iterator before = *this;
    ++_i;
    return before;
  }
  bool operator==(const cooperative_tensor_iterator& other) const { return _i == other._i; }
  bool is_valid_element() const { return _of->is_valid_element(_i); }
  auto get_multidimensional_index() const { return _of->get_multidimensional_index(_i); }

  thread Tensor* _of;
  uint _i;
};

template <class ElementType, class Extents, class Layout>
class cooperative_tensor {
 public:
  typedef ElementType element_type;
  typedef ElementType value_type;
  typedef Extents extents_type;
  typedef Layout layout;
  typedef typename Extents::index_type index_type;
  typedef uint16_t thread_size_type;
  typedef uint16_t thread_index_type;
  typedef cooperative_tensor_iterator<cooperative_tensor> iterator;
  typedef cooperative_tensor_iterator<const cooperative_tensor> const_iterator;
  typedef array<index_type, Layout::rank> index_array;

  static constexpr size_t get_rank() { return Layout::rank; }
  static constexpr size_t get_static_extent(size_t r) { return Extents::static_extent(r); }
  static constexpr index_type get_extent(size_t r) { return index_type(Extents::static_extent(r)); }
  thread_size_type get_capacity() const { return thread_size_type(Layout::capacity()); }

  bool is_valid_element(uint i) const { return Layout::holds(Layout::mine(i)); }
  bool is_valid_element(const_iterator it) const { return is_valid_element(it._i); }
  bool is_valid_element(iterator it) const { return is_valid_element(it._i); }
  index_array get_multidimensional_index(uint i) const {
    const auto at = Layout::mine(i);
    index_array index;
    for (size_t r = 0; r < Layout::rank; ++r) index[r] = index_type(at[r]);
    return index;
  }
  index_array get_multidimensional_index(iterator it) const {
    return get_multidimensional_index(it._i);
  }
  index_array get_multidimensional_index(const_iterator it) const {
    return get_multidimensional_index(it._i);
  }

  thread ElementType& operator[](uint i) { return _elements[i]; }
  const thread ElementType& operator[](uint i) const { return _elements[i]; }
  ElementType get(uint i) const { return is_valid_element(i) ? _elements[i] : ElementType(); }
  void set(uint i, ElementType value) {
    if (is_valid_element(i)) _elements[i] = value;
  }

  iterator get_iterator(uint i) { return {this, i}; }
  const_iterator get_iterator(uint i) const { return {this, i}; }
  iterator begin() { return {this, 0}; }
  iterator end() { return {this, Layout::capacity()}; }
  const_iterator begin() const { return {this, 0}; }
  const_iterator end() const { return {this, Layout::capacity()}; }
  template <class E, class X, class L>
  iterator map_iterator(cooperative_tensor_iterator<cooperative_tensor<E, X, L>> it) {
    return {this, mapped<L>(it._i)};
  }
  template <class E, class X, class L>
  const_iterator map_iterator(
      cooperative_tensor_iterator<const cooperative_tensor<E, X, L>> it) const {
    return {this, mapped<L>(it._i)};
  }

  // Elements outside of the tensor are 0 when they are loaded, and are not stored.
  template <class T, class E, class D, class... Tags>
  void load(const tensor<T, E, D, Tags...>& from) {
    check<tensor<T, E, D, Tags...>>();
    for (uint i = 0; i < Layout::capacity(); ++i) {
      const auto at = Layout::mine(i);
      if (!Layout::holds(at)) continue;
      _elements[i] = inside(from, at) ? from[at] : ElementType(0);
    }
  }
  template <class T, class E, class D, class... Tags>
  void store(const tensor<T, E, D, Tags...>& to) const {
    check<tensor<T, E, D, Tags...>>();
    for (uint i = 0; i < Layout::capacity(); ++i) {
      const auto at = Layout::mine(i);
      if (Layout::holds(at) && inside(to, at)) to[at] = _elements[i];
    }
  }

 private:
  template <class From>
  static uint mapped(uint i) {
    static_assert(_msl::maps_elements<Layout, From>,
                  "map_iterator: the iterator is of a tensor with other rows or columns; see "
                  "is_iterator_compatible");
    if constexpr (__is_same(Layout, From))
      return i;
    else
      return Layout::template for_element<From>(i);
  }
  template <class Tensor>
  static constexpr void check() {
    static_assert(Tensor::get_rank() == Layout::rank,
                  "load and store: the tensor has another rank");
    static_assert(
        is_same_v<typename Tensor::value_type, ElementType>,
        "load and store: the tensor's elements are of another type, and are not converted");
  }
  template <class Tensor>
  static bool inside(const Tensor& tensor, const typename Layout::Index& at) {
    for (size_t r = 0; r < Layout::rank; ++r)
      if (at[r] >= int(tensor.get_extent(r))) return false;
    return true;
  }

  ElementType _elements[Layout::largest];
};

template <size_t Size>
class execution_threads {
  static_assert(Size == 1, "execution_threads: 1 alone is there");

 public:
  static constexpr size_t static_size = Size;
  constexpr uint size() const { return Size; }
};
template <size_t Size>
class execution_simdgroups {
  static_assert(Size != 0 && Size <= 32, "execution_simdgroups: the size is 1 to 32");

 public:
  static constexpr size_t static_size = Size;
  constexpr uint size() const { return Size; }
};
using execution_thread = execution_threads<1>;
using execution_simdgroup = execution_simdgroups<1>;
template <class T>
constexpr bool is_execution_thread_v = is_same_v<T, execution_thread>;
template <class T>
constexpr bool is_execution_simdgroups_v = false;
template <size_t N>
constexpr bool is_execution_simdgroups_v<execution_simdgroups<N>> = true;

}  // namespace metal
