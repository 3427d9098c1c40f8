// <metal_texture>: textures and samplers. The classes here are handles; how pixels are stored is
// the business of texture_access.h, which every .metallib carries once.
#pragma once

#include "simdgroup_matrix.h"
#include "texture_atomics.h"

namespace _msl {

// The arguments of a texture's sample function. Coordinates count from level 0.
struct Sample {
  float at[3];
  int offset[3];
  unsigned dimensions;  // of `at`
  unsigned slice;       // of an array; of cubes the first of six
  float lod;
  bool cube;      // `at` is a direction
  bool compares;  // each pixel becomes 0 or 1 before pixels are mixed
  float reference;
};
struct PixelPosition {
  unsigned x, y, z, level;  // z: plane of a 3D texture, slice of an array
};
constexpr PixelPosition pixel_at(unsigned x, unsigned y, unsigned z) { return {x, y, z, 0}; }

}  // namespace _msl

MSL_HIDDEN void _msl_texture_read(const metallib_texture* texture, _msl::PixelPosition at,
                                  float* out);
MSL_HIDDEN void _msl_texture_read_integers(const metallib_texture* texture, _msl::PixelPosition at,
                                           int* out);
MSL_HIDDEN void _msl_texture_write(const metallib_texture* texture, _msl::PixelPosition at,
                                   const float* pixel);
MSL_HIDDEN void _msl_texture_write_integers(const metallib_texture* texture, _msl::PixelPosition at,
                                            const int* pixel, bool is_signed);
// Where a pixel of one 32-bit integer lies, for atomics; nullptr outside, and in other formats.
MSL_HIDDEN char* _msl_texture_place(const metallib_texture* texture, _msl::PixelPosition at);
MSL_HIDDEN void _msl_texture_sample(const metallib_texture* texture,
                                    const metallib_sampler* sampler, const _msl::Sample* sample,
                                    float* out);
MSL_HIDDEN void _msl_texture_sample_integers(const metallib_texture* texture,
                                             const metallib_sampler* sampler,
                                             const _msl::Sample* sample, int* out);
// Component `component` of the four pixels that a linear filter would mix.
MSL_HIDDEN void _msl_texture_gather(const metallib_texture* texture,
                                    const metallib_sampler* sampler, const _msl::Sample* sample,
                                    unsigned component, float* out);
MSL_HIDDEN void _msl_texture_gather_integers(const metallib_texture* texture,
                                             const metallib_sampler* sampler,
                                             const _msl::Sample* sample, unsigned component,
                                             int* out);

namespace metal {

enum class access { sample, read, write, read_write };
enum class component { x, y, z, w };

// ---- samplers: enums and functions that set one property each
enum class coord { normalized, pixel };
enum class address {
  clamp_to_edge = 0,
  repeat = 2,
  mirrored_repeat = 3,
  clamp_to_zero = 4,
  clamp_to_border = 5
};
enum class s_address {
  clamp_to_edge = 0,
  repeat = 2,
  mirrored_repeat = 3,
  clamp_to_zero = 4,
  clamp_to_border = 5
};
enum class t_address {
  clamp_to_edge = 0,
  repeat = 2,
  mirrored_repeat = 3,
  clamp_to_zero = 4,
  clamp_to_border = 5
};
enum class r_address {
  clamp_to_edge = 0,
  repeat = 2,
  mirrored_repeat = 3,
  clamp_to_zero = 4,
  clamp_to_border = 5
};
enum class filter { nearest, linear };
enum class mag_filter { nearest, linear };
enum class min_filter { nearest, linear };
enum class mip_filter { none, nearest, linear };
enum class border_color { transparent_black, opaque_black, opaque_white };
enum class compare_func {
  never = 0,
  less = 1,
  equal = 2,
  less_equal = 3,
  greater = 4,
  not_equal = 5,
  greater_equal = 6,
  always = 7,
  none = 0
};
struct max_anisotropy {
  constexpr max_anisotropy(int) {}
};
struct lod_clamp {
  float low, high;
  constexpr lod_clamp(float min, float max) : low(min), high(max) {}
};

// In 8 bytes, as in an argument buffer: where its state lies, or the state of one that the shader
// declares, with the lowest bit set.
struct sampler {
  template <class... P>
  constexpr sampler(P... properties) {
    metallib_sampler state{};
    state.lod_max = __FLT_MAX__;
    (set(state, properties), ...);
    int at = 1;
    for (int i = 0; i < 3; ++i) pack(state.address[i], 3, at);
    pack(state.mag_filter, 1, at), pack(state.min_filter, 1, at), pack(state.mip_filter, 2, at);
    pack(state.border_color, 2, at), pack(state.pixel_coordinates, 1, at);
    pack(state.compare, 3, at);
    // Without their sign, and with 14 bits of mantissa.
    pack(__builtin_bit_cast(uint, state.lod_min) >> 9, 22, at);
    pack(__builtin_bit_cast(uint, state.lod_max) >> 9, 22, at);
  }
  explicit sampler(const metallib_sampler* state) : _bits(ulong(state)) {}

  // `room` is for a state that the shader declares.
  const metallib_sampler* _state(metallib_sampler& room) const {
    if (!(_bits & 1)) return (const metallib_sampler*)_bits;
    int at = 1;
    for (int i = 0; i < 3; ++i) room.address[i] = uchar(unpack(3, at));
    room.mag_filter = uchar(unpack(1, at)), room.min_filter = uchar(unpack(1, at));
    room.mip_filter = uchar(unpack(2, at)), room.border_color = uchar(unpack(2, at));
    room.pixel_coordinates = uchar(unpack(1, at)), room.compare = uchar(unpack(3, at));
    room.lod_min = __builtin_bit_cast(float, unpack(22, at) << 9);
    room.lod_max = __builtin_bit_cast(float, unpack(22, at) << 9);
    return &room;
  }

 private:
  using State = metallib_sampler;
  static constexpr void set(State& s, coord c) { s.pixel_coordinates = c == coord::pixel; }
  static constexpr void set(State& s, address a) {
    s.address[0] = s.address[1] = s.address[2] = uchar(a);
  }
  static constexpr void set(State& s, s_address a) { s.address[0] = uchar(a); }
  static constexpr void set(State& s, t_address a) { s.address[1] = uchar(a); }
  static constexpr void set(State& s, r_address a) { s.address[2] = uchar(a); }
  static constexpr void set(State& s, filter f) { s.mag_filter = s.min_filter = uchar(f); }
  static constexpr void set(State& s, mag_filter f) { s.mag_filter = uchar(f); }
  static constexpr void set(State& s, min_filter f) { s.min_filter = uchar(f); }
  static constexpr void set(State& s, mip_filter f) { s.mip_filter = uchar(f); }
  static constexpr void set(State& s, border_color c) { s.border_color = uchar(c); }
  static constexpr void set(State& s, compare_func c) { s.compare = uchar(c); }
  static constexpr void set(State&, max_anisotropy) {}
  static constexpr void set(State& s, lod_clamp c) { s.lod_min = c.low, s.lod_max = c.high; }

  constexpr void pack(uint value, int bits, int& at) {
    _bits |= ulong(value) << at;
    at += bits;
  }
  uint unpack(int bits, int& at) const {
    uint value = uint(_bits >> at) & ((1u << bits) - 1);
    at += bits;
    return value;
  }

  ulong _bits = 1;
};

// ---- what a sample call may say behind its coordinates
struct level {
  float value;
  explicit level(float lod) : value(lod) {}
};
struct bias {
  float value;
  explicit bias(float lod) : value(lod) {}
};
struct min_lod_clamp {
  float value;
  explicit min_lod_clamp(float lod) : value(lod) {}
};
struct gradient2d {
  float2 dx, dy;
  gradient2d(float2 x, float2 y) : dx(x), dy(y) {}
};
struct gradient3d {
  float3 dx, dy;
  gradient3d(float3 x, float3 y) : dx(x), dy(y) {}
};

struct gradientcube {
  float3 dx, dy;
  gradientcube(float3 x, float3 y) : dx(x), dy(y) {}
};

}  // namespace metal

namespace _msl {

// Level of detail that two steps over the grid's axes ask for.
template <int N>
inline float detail(metal::vec<float, N> dx, metal::vec<float, N> dy, const metallib_texture* t) {
  const unsigned size[3] = {t->width, t->height, t->depth};
  float x = 0, y = 0;
  for (int i = 0; i < N; ++i) {
    x += dx[i] * dx[i] * float(size[i]) * float(size[i]);
    y += dy[i] * dy[i] * float(size[i]) * float(size[i]);
  }
  return 0.5f * __builtin_log2f(x > y ? x : y);
}
inline void option(Sample& s, const metallib_texture*, metal::level o) { s.lod = o.value; }
// Without neighbours to compare with, a bias is added to level 0.
inline void option(Sample& s, const metallib_texture*, metal::bias o) { s.lod = o.value; }
inline void option(Sample& s, const metallib_texture*, metal::min_lod_clamp o) {
  if (s.lod < o.value) s.lod = o.value;
}
inline void option(Sample& s, const metallib_texture* t, metal::gradient2d o) {
  s.lod = detail<2>(o.dx, o.dy, t);
}
inline void option(Sample& s, const metallib_texture* t, metal::gradient3d o) {
  s.lod = detail<3>(o.dx, o.dy, t);
}
// A face is two units wide where the direction's longest part is one.
inline void option(Sample& s, const metallib_texture* t, metal::gradientcube o) {
  float x = 0, y = 0, longest = 0;
  for (int i = 0; i < 3; ++i) {
    x += o.dx[i] * o.dx[i];
    y += o.dy[i] * o.dy[i];
    longest = __builtin_fmaxf(longest, __builtin_fabsf(s.at[i]));
  }
  s.lod = 0.5f * __builtin_log2f(x > y ? x : y) + __builtin_log2f(float(t->width) * 0.5f / longest);
}
inline void option(Sample& s, const metallib_texture*, int o) { s.offset[0] = o; }
inline void option(Sample& s, const metallib_texture*, metal::vec<int, 2> o) {
  s.offset[0] = o.x, s.offset[1] = o.y;
}
inline void option(Sample& s, const metallib_texture*, metal::vec<int, 3> o) {
  s.offset[0] = o.x, s.offset[1] = o.y, s.offset[2] = o.z;
}

// Shared by all textures.
template <class T, metal::access A>
struct Texture {
  static_assert(metal::is_same_v<T, float> || metal::is_same_v<T, half> ||
                    metal::is_same_v<T, int> || metal::is_same_v<T, uint> ||
                    metal::is_same_v<T, short> || metal::is_same_v<T, ushort>,
                "a texture's component type is float, half, int, uint, short or ushort");
  static constexpr bool kFloating = metal::is_floating_point_v<T>;
  static constexpr bool kReads = A != metal::access::write;
  static constexpr bool kWrites = A == metal::access::write || A == metal::access::read_write;
  using Stored = metal::conditional_t<kFloating, float, int>;
  using Pixel = metal::vec<T, 4>;

  Texture() = default;
  explicit Texture(const metallib_texture* texture) : _texture(texture) {}

  uint get_num_mip_levels() const { return _texture->levels; }
  void fence() const {
    static_assert(A == metal::access::read_write, "fence() needs access::read_write");
  }

  static Pixel pixel(const Stored* v) { return Pixel(T(v[0]), T(v[1]), T(v[2]), T(v[3])); }
  Pixel read_at(PixelPosition at) const {
    static_assert(kReads, "a texture with access::write cannot be read");
    Stored v[4];
    if constexpr (kFloating) {
      _msl_texture_read(_texture, at, v);
    } else {
      _msl_texture_read_integers(_texture, at, v);
    }
    return pixel(v);
  }
  void write_at(Pixel p, PixelPosition at) const {
    static_assert(kWrites, "a texture needs access::write or access::read_write to be written");
    const Stored v[4] = {Stored(p.x), Stored(p.y), Stored(p.z), Stored(p.w)};
    if constexpr (kFloating) {
      _msl_texture_write(_texture, at, v);
    } else {
      _msl_texture_write_integers(_texture, at, v, metal::is_signed_v<T>);
    }
  }
  // `update` of a pixel's number; outside of the texture there is none.
  template <class Update>
  Pixel atomic_at(PixelPosition at, Update update) const {
    static_assert(A == metal::access::read_write, "atomics on a texture need access::read_write");
    static_assert(metal::is_same_v<T, int> || metal::is_same_v<T, uint>,
                  "atomics on a texture need a component type of int or uint");
    char* place = _msl_texture_place(_texture, at);
    return place ? Pixel(update((device metal::atomic<T>*)place), 0, 0, 0) : Pixel(T(0));
  }
  template <class... O>
  Pixel sample_at(const metal::sampler& s, Sample what, O... options) const {
    static_assert(A == metal::access::sample, "sample() needs access::sample");
    (option(what, _texture, options), ...);
    Stored v[4];
    metallib_sampler room;
    const metallib_sampler* state = s._state(room);
    if constexpr (kFloating) {
      _msl_texture_sample(_texture, state, &what, v);
    } else {
      _msl_texture_sample_integers(_texture, state, &what, v);
    }
    return pixel(v);
  }
  Pixel gather_at(const metal::sampler& s, const Sample& what, metal::component c) const {
    static_assert(A == metal::access::sample, "gather() needs access::sample");
    Stored v[4];
    metallib_sampler room;
    const metallib_sampler* state = s._state(room);
    if constexpr (kFloating) {
      _msl_texture_gather(_texture, state, &what, uint(c), v);
    } else {
      _msl_texture_gather_integers(_texture, state, &what, uint(c), v);
    }
    return pixel(v);
  }
  static constexpr uint at_level(uint size, uint lod) {
    return lod < 32 && size >> lod ? size >> lod : 1;
  }

  const metallib_texture* _texture = nullptr;
};

}  // namespace _msl

namespace metal {}  // namespace metal
namespace _msl {
// An array of textures, for a kernel's argument.
template <class Array, class... P>
inline Array textures(P... each) {
  return Array{{metal::remove_reference_t<decltype(metal::declval<Array&>()[0])>(each)...}};
}
}  // namespace _msl
namespace metal {

#define MSL_TEXTURE(name)                       \
  template <class T, access A = access::sample> \
  struct name : _msl::Texture<T, A> {           \
    using _msl::Texture<T, A>::Texture;         \
    using Pixel = vec<T, 4>;
#define MSL_TEXTURE_WIDTH \
  uint get_width(uint lod = 0) const { return this->at_level(this->_texture->width, lod); }
#define MSL_TEXTURE_HEIGHT \
  uint get_height(uint lod = 0) const { return this->at_level(this->_texture->height, lod); }

// clang-format off
MSL_TEXTURE(texture1d)
  MSL_TEXTURE_ATOMICS(_msl::pixel_at(at, 0, 0), uint at)
  MSL_TEXTURE_WIDTH
  Pixel read(uint at, uint lod = 0) const { return this->read_at({at, 0, 0, lod}); }
  void write(Pixel p, uint at, uint lod = 0) const { this->write_at(p, {at, 0, 0, lod}); }
  Pixel sample(sampler s, float at) const { return this->sample_at(s, {{at, 0, 0}, {}, 1, 0, 0}); }
};

MSL_TEXTURE(texture1d_array)
  MSL_TEXTURE_ATOMICS(_msl::pixel_at(at, 0, slice), uint at, uint slice)
  MSL_TEXTURE_WIDTH
  uint get_array_size() const { return this->_texture->array_length; }
  Pixel read(uint at, uint slice, uint lod = 0) const { return this->read_at({at, 0, slice, lod}); }
  void write(Pixel p, uint at, uint slice, uint lod = 0) const { this->write_at(p, {at, 0, slice, lod}); }
  Pixel sample(sampler s, float at, uint slice) const {
    return this->sample_at(s, {{at, 0, 0}, {}, 1, slice, 0});
  }
};

MSL_TEXTURE(texture2d)
  MSL_TEXTURE_ATOMICS(_msl::pixel_at(at.x, at.y, 0), uint2 at)
  MSL_TEXTURE_WIDTH
  MSL_TEXTURE_HEIGHT
  Pixel read(uint2 at, uint lod = 0) const { return this->read_at({at.x, at.y, 0, lod}); }
  Pixel read(ushort2 at, ushort lod = 0) const { return this->read_at({at.x, at.y, 0, lod}); }
  void write(Pixel p, uint2 at, uint lod = 0) const { this->write_at(p, {at.x, at.y, 0, lod}); }
  void write(Pixel p, ushort2 at, ushort lod = 0) const { this->write_at(p, {at.x, at.y, 0, lod}); }
  template <class... O>
  Pixel sample(sampler s, float2 at, O... options) const {
    return this->sample_at(s, {{at.x, at.y, 0}, {}, 2, 0, 0}, options...);
  }
  Pixel gather(sampler s, float2 at, int2 offset = int2(0), component c = component::x) const {
    return this->gather_at(s, {{at.x, at.y, 0}, {offset.x, offset.y, 0}, 2, 0, 0}, c);
  }
};

MSL_TEXTURE(texture2d_array)
  MSL_TEXTURE_ATOMICS(_msl::pixel_at(at.x, at.y, slice), uint2 at, uint slice)
  MSL_TEXTURE_WIDTH
  MSL_TEXTURE_HEIGHT
  uint get_array_size() const { return this->_texture->array_length; }
  Pixel read(uint2 at, uint slice, uint lod = 0) const { return this->read_at({at.x, at.y, slice, lod}); }
  Pixel read(ushort2 at, ushort slice, ushort lod = 0) const { return this->read_at({at.x, at.y, slice, lod}); }
  void write(Pixel p, uint2 at, uint slice, uint lod = 0) const { this->write_at(p, {at.x, at.y, slice, lod}); }
  void write(Pixel p, ushort2 at, ushort slice, ushort lod = 0) const {
    this->write_at(p, {at.x, at.y, slice, lod});
  }
  template <class... O>
  Pixel sample(sampler s, float2 at, uint slice, O... options) const {
    return this->sample_at(s, {{at.x, at.y, 0}, {}, 2, slice, 0}, options...);
  }
  Pixel gather(sampler s, float2 at, uint slice, int2 offset = int2(0), component c = component::x) const {
    return this->gather_at(s, {{at.x, at.y, 0}, {offset.x, offset.y, 0}, 2, slice, 0}, c);
  }
};

// Six slices a cube: +x, -x, +y, -y, +z, -z.
MSL_TEXTURE(texturecube)
  MSL_TEXTURE_ATOMICS(_msl::pixel_at(at.x, at.y, face), uint2 at, uint face)
  MSL_TEXTURE_WIDTH
  MSL_TEXTURE_HEIGHT
  Pixel read(uint2 at, uint face, uint lod = 0) const { return this->read_at({at.x, at.y, face, lod}); }
  Pixel read(ushort2 at, ushort face, ushort lod = 0) const { return this->read_at({at.x, at.y, face, lod}); }
  void write(Pixel p, uint2 at, uint face, uint lod = 0) const { this->write_at(p, {at.x, at.y, face, lod}); }
  void write(Pixel p, ushort2 at, ushort face, ushort lod = 0) const {
    this->write_at(p, {at.x, at.y, face, lod});
  }
  template <class... O>
  Pixel sample(sampler s, float3 at, O... options) const {
    return this->sample_at(s, {{at.x, at.y, at.z}, {}, 3, 0, 0, true}, options...);
  }
  Pixel gather(sampler s, float3 at, component c = component::x) const {
    return this->gather_at(s, {{at.x, at.y, at.z}, {}, 3, 0, 0, true}, c);
  }
};

MSL_TEXTURE(texturecube_array)
  MSL_TEXTURE_ATOMICS(_msl::pixel_at(at.x, at.y, 6 * cube + face), uint2 at, uint face, uint cube)
  MSL_TEXTURE_WIDTH
  MSL_TEXTURE_HEIGHT
  uint get_array_size() const { return this->_texture->array_length / 6; }
  Pixel read(uint2 at, uint face, uint cube, uint lod = 0) const {
    return this->read_at({at.x, at.y, 6 * cube + face, lod});
  }
  Pixel read(ushort2 at, ushort face, ushort cube, ushort lod = 0) const {
    return this->read_at({at.x, at.y, 6u * cube + face, lod});
  }
  void write(Pixel p, uint2 at, uint face, uint cube, uint lod = 0) const {
    this->write_at(p, {at.x, at.y, 6 * cube + face, lod});
  }
  void write(Pixel p, ushort2 at, ushort face, ushort cube, ushort lod = 0) const {
    this->write_at(p, {at.x, at.y, 6u * cube + face, lod});
  }
  template <class... O>
  Pixel sample(sampler s, float3 at, uint cube, O... options) const {
    return this->sample_at(s, {{at.x, at.y, at.z}, {}, 3, 6 * cube, 0, true}, options...);
  }
  Pixel gather(sampler s, float3 at, uint cube, component c = component::x) const {
    return this->gather_at(s, {{at.x, at.y, at.z}, {}, 3, 6 * cube, 0, true}, c);
  }
};

// Depth textures have one component; the comparison is the sampler's compare_func.
#define MSL_DEPTH_TEXTURE(name, like)                                                   \
  template <class T, access A = access::sample>                                         \
  struct name : private like<T, A> {                                                    \
    static_assert(is_same_v<T, float>, "a depth texture's component type is float");    \
    static_assert(A == access::sample || A == access::read,                             \
                  "a depth texture has access::sample or access::read");                \
    using Base = like<T, A>;                                                            \
    using Base::Base;                                                                   \
    using Base::get_height, Base::get_num_mip_levels, Base::get_width, Base::_texture;  \
    template <class... P>                                                               \
    T read(P... place) const { return Base::read(place...).x; }                         \
    template <class... P>                                                               \
    T sample(sampler s, P... place) const { return Base::sample(s, place...).x; }       \
    friend bool is_null_texture(const name& texture) { return !texture._texture; }
MSL_DEPTH_TEXTURE(depth2d, texture2d)
  template <class... O>
  T sample_compare(sampler s, float2 at, float reference, O... options) const {
    return this->sample_at(s, {{at.x, at.y, 0}, {}, 2, 0, 0, false, true, reference}, options...).x;
  }
  vec<T, 4> gather(sampler s, float2 at, int2 offset = int2(0)) const { return Base::gather(s, at, offset); }
  vec<T, 4> gather_compare(sampler s, float2 at, float reference, int2 offset = int2(0)) const {
    return this->gather_at(s, {{at.x, at.y, 0}, {offset.x, offset.y, 0}, 2, 0, 0, false, true, reference}, component::x);
  }
};
MSL_DEPTH_TEXTURE(depth2d_array, texture2d_array)
  using Base::get_array_size;
  template <class... O>
  T sample_compare(sampler s, float2 at, uint slice, float reference, O... options) const {
    return this->sample_at(s, {{at.x, at.y, 0}, {}, 2, slice, 0, false, true, reference}, options...).x;
  }
  vec<T, 4> gather(sampler s, float2 at, uint slice, int2 offset = int2(0)) const {
    return Base::gather(s, at, slice, offset);
  }
  vec<T, 4> gather_compare(sampler s, float2 at, uint slice, float reference, int2 offset = int2(0)) const {
    return this->gather_at(s, {{at.x, at.y, 0}, {offset.x, offset.y, 0}, 2, slice, 0, false, true, reference},
                           component::x);
  }
};
MSL_DEPTH_TEXTURE(depthcube, texturecube)
  template <class... O>
  T sample_compare(sampler s, float3 at, float reference, O... options) const {
    return this->sample_at(s, {{at.x, at.y, at.z}, {}, 3, 0, 0, true, true, reference}, options...).x;
  }
  vec<T, 4> gather(sampler s, float3 at) const { return Base::gather(s, at); }
  vec<T, 4> gather_compare(sampler s, float3 at, float reference) const {
    return this->gather_at(s, {{at.x, at.y, at.z}, {}, 3, 0, 0, true, true, reference}, component::x);
  }
};
MSL_DEPTH_TEXTURE(depthcube_array, texturecube_array)
  using Base::get_array_size;
  template <class... O>
  T sample_compare(sampler s, float3 at, uint cube, float reference, O... options) const {
    return this->sample_at(s, {{at.x, at.y, at.z}, {}, 3, 6 * cube, 0, true, true, reference}, options...).x;
  }
  vec<T, 4> gather(sampler s, float3 at, uint cube) const { return Base::gather(s, at, cube); }
  vec<T, 4> gather_compare(sampler s, float3 at, uint cube, float reference) const {
    return this->gather_at(s, {{at.x, at.y, at.z}, {}, 3, 6 * cube, 0, true, true, reference}, component::x);
  }
};

MSL_TEXTURE(texture3d)
  MSL_TEXTURE_ATOMICS(_msl::pixel_at(at.x, at.y, at.z), uint3 at)
  MSL_TEXTURE_WIDTH
  MSL_TEXTURE_HEIGHT
  uint get_depth(uint lod = 0) const { return this->at_level(this->_texture->depth, lod); }
  Pixel read(uint3 at, uint lod = 0) const { return this->read_at({at.x, at.y, at.z, lod}); }
  Pixel read(ushort3 at, ushort lod = 0) const { return this->read_at({at.x, at.y, at.z, lod}); }
  void write(Pixel p, uint3 at, uint lod = 0) const { this->write_at(p, {at.x, at.y, at.z, lod}); }
  void write(Pixel p, ushort3 at, ushort lod = 0) const { this->write_at(p, {at.x, at.y, at.z, lod}); }
  template <class... O>
  Pixel sample(sampler s, float3 at, O... options) const {
    return this->sample_at(s, {{at.x, at.y, at.z}, {}, 3, 0, 0}, options...);
  }
};

MSL_TEXTURE(texture_buffer)
  MSL_TEXTURE_ATOMICS(_msl::pixel_at(at, 0, 0), uint at)
  MSL_TEXTURE_WIDTH
  Pixel read(uint at) const { return this->read_at({at, 0, 0, 0}); }
  void write(Pixel p, uint at) const { this->write_at(p, {at, 0, 0, 0}); }
};
// clang-format on

template <class T, access A>
inline bool is_null_texture(const _msl::Texture<T, A>& texture) {
  return !texture._texture;
}

}  // namespace metal
