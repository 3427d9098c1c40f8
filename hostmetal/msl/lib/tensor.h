// <metal_tensor>: extents and tensors. Only sources of Metal 4 that name them have this file (tensors.py).
#pragma once

#include "extended_vector.h"
#include "simdgroup.h"

namespace metal {

constexpr size_t dynamic_extent = ~size_t(0);

template <class IndexType, size_t... Extents>
class extents {
  static_assert(is_integral_v<IndexType>, "extents: the type of indices is an integer");

 public:
  typedef IndexType index_type;
  typedef make_unsigned_t<IndexType> size_type;
  typedef size_t rank_type;

  static constexpr rank_type rank() { return sizeof...(Extents); }
  static constexpr rank_type rank_dynamic() {
    return (rank_type(Extents == dynamic_extent) + ... + rank_type(0));
  }
  static constexpr size_t static_extent(rank_type r) {
    const size_t all[] = {Extents..., 0};
    return all[r];
  }
  constexpr index_type extent(rank_type r) const {
    return static_extent(r) == dynamic_extent ? _sizes[r] : index_type(static_extent(r));
  }

  constexpr extents() : _sizes{} {}
  // All extents, or those alone that are dynamic.
  template <class... I,
            _msl::enable<(sizeof...(I) > 0 &&
                          (sizeof...(I) == sizeof...(Extents) || sizeof...(I) == rank_dynamic()) &&
                          (is_convertible_v<I, index_type> && ...))> = 0>
  constexpr extents(I... sizes) : _sizes{} {
    const index_type given[] = {index_type(sizes)...};
    fill(given, sizeof...(I));
  }
  template <class I, size_t N,
            _msl::enable<(N == sizeof...(Extents) || N == rank_dynamic()) && (N > 0)> = 0>
  constexpr extents(const array<I, N>& sizes) : _sizes{} {
    index_type given[N]{};
    for (size_t i = 0; i < N; ++i) given[i] = index_type(sizes[i]);
    fill(given, N);
  }
  template <class I, size_t... E, _msl::enable<sizeof...(E) == sizeof...(Extents)> = 0>
  constexpr extents(const extents<I, E...>& other) : _sizes{} {
    for (size_t r = 0; r < rank(); ++r) _sizes[r] = index_type(other.extent(r));
  }
  extents(const extents&) = default;
  extents& operator=(const extents&) = default;

  template <class I, size_t... E>
  friend constexpr bool operator==(const extents& a, const extents<I, E...>& b) {
    if (rank() != sizeof...(E)) return false;
    for (size_t r = 0; r < rank(); ++r)
      if (a.extent(r) != b.extent(r)) return false;
    return true;
  }

 private:
  constexpr void fill(const index_type* given, size_t n) {
    for (size_t r = 0, next = 0; r < rank(); ++r) {
      if (n == rank())
        _sizes[r] = given[r];
      else if (static_extent(r) == dynamic_extent)
        _sizes[r] = given[next++];
    }
  }
  index_type _sizes[sizeof...(Extents) ? sizeof...(Extents) : 1];
};

// Packed formats, of which a tensor has a sentence.
struct int4b_format;
struct uint4b_format;
struct int2b_format;
struct uint2b_format;
struct metal_fp4_e2m1_format;
struct metal_fp8_e4m3_format;
struct metal_fp8_e5m2_format;
struct metal_fp8_ue8m0_format;

}  // namespace metal

namespace _msl {
template <class T>
constexpr bool is_four_bits =
    __is_same(T, metal::int4b_format) || __is_same(T, metal::uint4b_format);
template <class T>
constexpr bool is_packed_format =
    __is_same(T, metal::int2b_format) || __is_same(T, metal::uint2b_format) ||
    __is_same(T, metal::metal_fp4_e2m1_format) || __is_same(T, metal::metal_fp8_e4m3_format) ||
    __is_same(T, metal::metal_fp8_e5m2_format) || __is_same(T, metal::metal_fp8_ue8m0_format);

// Numbers of four bits, two in a byte: the lower half is the first.
template <class Bytes, bool is_signed>
struct FourBits {
  Bytes bytes;
  long first;
  FourBits operator+(long n) const { return {bytes, first + n}; }
  int8_t operator[](long i) const {
    const long at = first + i;
    const uint byte = bytes[at >> 1];
    const uint four = at & 1 ? byte >> 4 : byte & 15;
    return is_signed ? int8_t(int8_t(four << 4) >> 4) : int8_t(four);
  }
};
// How a tensor holds the place of its elements, and how a kernel gives it.
template <class ElementType>
struct PlaceOf {
  typedef ElementType* given;
  typedef ElementType* held;
  static held from(given data) { return data; }
};
#define MSL_FOUR_BITS(SPACE, format, is_signed)        \
  template <>                                          \
  struct PlaceOf<SPACE metal::format> {                \
    typedef SPACE uchar* given;                        \
    typedef FourBits<given, is_signed> held;           \
    static held from(given data) { return {data, 0}; } \
  };
MSL_FOUR_BITS(device, int4b_format, true)
MSL_FOUR_BITS(device, uint4b_format, false)
MSL_FOUR_BITS(threadgroup, int4b_format, true)
MSL_FOUR_BITS(threadgroup, uint4b_format, false)
#undef MSL_FOUR_BITS

template <class I, size_t Rank, size_t... E>
struct DynamicExtents : DynamicExtents<I, Rank - 1, E..., metal::dynamic_extent> {};
template <class I, size_t... E>
struct DynamicExtents<I, 0, E...> {
  typedef metal::extents<I, E...> type;
};
template <class T>
constexpr bool in_threadgroup_memory = false;
template <class T>
constexpr bool in_threadgroup_memory<threadgroup T> = true;
}  // namespace _msl

namespace metal {

template <class IndexType, size_t Rank>
using dextents = typename _msl::DynamicExtents<IndexType, Rank>::type;

struct tensor_handle {};
struct tensor_inline {};
struct tensor_offset {};

template <class ElementType, class Extents, class Descriptor = tensor_handle, class... Tags>
struct tensor {
  static_assert(is_same_v<Descriptor, tensor_handle> || is_same_v<Descriptor, tensor_inline>,
                "tensor: the third argument is tensor_handle or tensor_inline, tensor_offset a tag "
                "behind it");
};

}  // namespace metal

namespace _msl {

template <class ElementType, class Extents>
struct TensorTypes {
  typedef ElementType element_type;
  typedef metal::remove_cv_t<plain<ElementType>> value_type;
  typedef ElementType* pointer;
  typedef ElementType& reference;
  typedef Extents extents_type;
  typedef typename Extents::index_type index_type;
  typedef typename Extents::size_type size_type;
  typedef typename Extents::rank_type rank_type;
  static_assert(!is_packed_format<value_type>,
                "tensor: packed formats of numbers are not supported by this compute compiler; "
                "unpack them to "
                "half, bfloat or int8_t in threadgroup memory, and make a tensor_inline of that");
  static_assert(Extents::rank() >= 1 && Extents::rank() <= METALLIB_MAX_TENSOR_RANK,
                "tensor: the rank is 1 to 16");

  static constexpr rank_type get_rank() { return Extents::rank(); }
  static constexpr size_t get_static_extent(rank_type r) { return Extents::static_extent(r); }
};

// A tensor that knows where its elements are: one made in a kernel, or a slice.
template <class ElementType, class Extents>
struct Elements : TensorTypes<ElementType, Extents> {
  using Types = TensorTypes<ElementType, Extents>;
  using typename Types::index_type;
  using typename Types::rank_type;
  typedef metal::array<index_type, Extents::rank()> strides_type;

  typedef typename PlaceOf<ElementType>::held Place;

  Elements() = default;
  Elements(Place data, const Extents& sizes, const strides_type& strides)
      : _data(data), _extents(sizes), _strides(strides) {}

  index_type get_extent(rank_type r) const { return _extents.extent(r); }
  Extents extents() const { return _extents; }
  index_type get_stride(rank_type r) const { return _strides[r]; }
  Place _msl_data() const { return _data; }

 private:
  Place _data;
  Extents _extents;
  strides_type _strides;
};

// One that the host made: the address of its description.
template <class ElementType, class Extents>
struct Handle : TensorTypes<ElementType, Extents> {
  using Types = TensorTypes<ElementType, Extents>;
  using typename Types::index_type;
  using typename Types::rank_type;
  static_assert(!is_four_bits<typename Types::value_type>,
                "tensor: the host has no tensors of four bits here; make a tensor_inline of a "
                "buffer's bytes");
  static_assert(!in_threadgroup_memory<ElementType>,
                "tensor: a tensor_handle is in device or constant memory; use tensor_inline");

  Handle() = default;
  explicit Handle(const void* description) : _described((constant metallib_tensor*)description) {}

  index_type get_extent(rank_type r) const {
    return Extents::static_extent(r) == metal::dynamic_extent
               ? index_type(_described->extents[r])
               : index_type(Extents::static_extent(r));
  }
  Extents extents() const {
    metal::array<index_type, Extents::rank()> sizes;
    for (size_t r = 0; r < Extents::rank(); ++r) sizes[r] = get_extent(r);
    return Extents(sizes);
  }
  index_type get_stride(rank_type r) const { return index_type(_described->strides[r]); }
  ElementType* _msl_data() const { return (ElementType*)_described->address; }

 private:
  constant metallib_tensor* _described;
};

// Accesses and slices, of both. `Slice`: the type of a slice with given extents.
template <class Base, template <class> class Slice>
struct TensorAccess : Base {
  using Base::Base;
  using typename Base::element_type;
  using typename Base::extents_type;
  using typename Base::index_type;

  template <class... I, enable<sizeof...(I) == extents_type::rank() &&
                               (metal::is_convertible_v<I, index_type> && ...)> = 0>
  element_type& operator[](I... index) const {
    no_parts_of_bytes();
    const index_type at[] = {index_type(index)...};
    return this->_msl_data()[offset(at)];
  }
  template <class I>
  element_type& operator[](const metal::array<I, extents_type::rank()>& index) const {
    no_parts_of_bytes();
    index_type at[extents_type::rank()];
    for (size_t r = 0; r < extents_type::rank(); ++r) at[r] = index_type(index[r]);
    return this->_msl_data()[offset(at)];
  }

  // Extents that are given are taken as they are; the others end where the tensor does.
  template <size_t... E, class... I,
            enable<sizeof...(E) == extents_type::rank() && sizeof...(I) == extents_type::rank() &&
                   (metal::is_convertible_v<I, index_type> && ...)> = 0>
  Slice<metal::extents<index_type, E...>> slice(I... index) const {
    using To = metal::extents<index_type, E...>;
    const index_type at[] = {index_type(index)...};
    metal::array<index_type, extents_type::rank()> sizes, strides;
    for (size_t r = 0; r < extents_type::rank(); ++r) {
      const index_type all = this->get_extent(r);
      sizes[r] = at[r] < all ? index_type(all - at[r]) : index_type(0);
      strides[r] = this->get_stride(r);
    }
    return Slice<To>(this->_msl_data() + offset(at), To(sizes), strides);
  }
  template <class... I, enable<sizeof...(I) == extents_type::rank() &&
                               (metal::is_convertible_v<I, index_type> && ...)> = 0>
  auto slice(I... index) const {
    return sliced(metal::dextents<index_type, extents_type::rank()>(), index...);
  }

 private:
  template <size_t... E, class... I>
  auto sliced(metal::extents<index_type, E...>, I... index) const {
    return slice<E...>(index...);
  }
  static constexpr void no_parts_of_bytes() {
    static_assert(!is_four_bits<typename Base::value_type>,
                  "tensor: an element of four bits has no address; matmul2d takes the tensor");
  }
  ptrdiff_t offset(const index_type* at) const {
    ptrdiff_t sum = 0;
    for (size_t r = 0; r < extents_type::rank(); ++r)
      sum += ptrdiff_t(at[r]) * ptrdiff_t(this->get_stride(r));
    return sum;
  }
};

template <class ElementType>
struct Slices {
  template <class Extents>
  using of_handle = metal::tensor<ElementType, Extents, metal::tensor_handle, metal::tensor_offset>;
  template <class Extents>
  using made = metal::tensor<ElementType, Extents, metal::tensor_inline>;
};

}  // namespace _msl

namespace metal {

template <class ElementType, class Extents>
struct tensor<ElementType, Extents, tensor_handle>
    : _msl::TensorAccess<_msl::Handle<ElementType, Extents>,
                         _msl::Slices<ElementType>::template of_handle> {
  using Access = _msl::TensorAccess<_msl::Handle<ElementType, Extents>,
                                    _msl::Slices<ElementType>::template of_handle>;
  using Access::Access;
};

template <class ElementType, class Extents>
struct tensor<ElementType, Extents, tensor_handle, tensor_offset>
    : _msl::TensorAccess<_msl::Elements<ElementType, Extents>,
                         _msl::Slices<ElementType>::template of_handle> {
  using Access = _msl::TensorAccess<_msl::Elements<ElementType, Extents>,
                                    _msl::Slices<ElementType>::template of_handle>;
  using Access::Access;
};

template <class ElementType, class Extents>
struct tensor<ElementType, Extents, tensor_inline>
    : _msl::TensorAccess<_msl::Elements<ElementType, Extents>,
                         _msl::Slices<ElementType>::template made> {
  using Access = _msl::TensorAccess<_msl::Elements<ElementType, Extents>,
                                    _msl::Slices<ElementType>::template made>;
  using index_type = typename Extents::index_type;

  tensor() = default;
  typedef _msl::PlaceOf<ElementType> Place;
  typedef array<index_type, Extents::rank()> strides_type;
  tensor(typename Place::held data, const Extents& sizes, const strides_type& strides)
      : Access(data, sizes, strides) {}  // a slice
  tensor(typename Place::given data, const Extents& sizes)
      : Access(Place::from(data), sizes, packed(sizes)) {}
  template <class I>
  tensor(typename Place::given data, const Extents& sizes, const array<I, Extents::rank()>& strides)
      : Access(Place::from(data), sizes, converted(strides)) {}

 private:
  static strides_type packed(const Extents& sizes) {
    strides_type strides;
    index_type next = 1;
    for (size_t r = 0; r < Extents::rank(); ++r) {
      strides[r] = next;
      next = index_type(next * sizes.extent(r));
    }
    return strides;
  }
  template <class I>
  static strides_type converted(const array<I, Extents::rank()>& from) {
    strides_type strides;
    for (size_t r = 0; r < Extents::rank(); ++r) strides[r] = index_type(from[r]);
    return strides;
  }
};
template <class T, class I, size_t... E>
tensor(T*, extents<I, E...>) -> tensor<T, extents<I, E...>, tensor_inline>;
template <class T, class I, size_t... E, class J>
tensor(T*, extents<I, E...>, array<J, sizeof...(E)>) -> tensor<T, extents<I, E...>, tensor_inline>;

template <class T>
struct is_tensor_handle : false_type {};
template <class T, class E, class... Tags>
struct is_tensor_handle<tensor<T, E, tensor_handle, Tags...>> : true_type {};
template <class T>
struct is_tensor_inline : false_type {};
template <class T, class E, class... Tags>
struct is_tensor_inline<tensor<T, E, tensor_inline, Tags...>> : true_type {};
template <class T>
struct has_tensor_offset : false_type {};
template <class T, class E, class D>
struct has_tensor_offset<tensor<T, E, D, tensor_offset>> : true_type {};
template <class T>
constexpr bool is_tensor_handle_v = is_tensor_handle<T>::value;
template <class T>
constexpr bool is_tensor_inline_v = is_tensor_inline<T>::value;
template <class T>
constexpr bool has_tensor_offset_v = has_tensor_offset<T>::value;

}  // namespace metal

namespace _msl {
// The argument of a kernel: the address of its description.
template <class T, class Launch>
inline T tensor(Launch l, unsigned index) {
  return T(l->buffers[index].address);
}
}  // namespace _msl
