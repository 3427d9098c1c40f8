// Pixels as they are stored, and how a sampler mixes them. Part of library.cc, as ordinary C++: one
// copy a .metallib. Nothing is ever read or written outside a texture: there pixels are zero, and
// writes are dropped.

namespace {

#if defined(__NVPTX__)
using _msl::PixelPosition;
using _msl::Sample;
#else
#define MSL_LIBM(name) __builtin_##name##f
// The parts of metal::vec and the shader's types that are needed here.
struct PixelPosition {
  unsigned x, y, z, level;
};
struct Sample {
  float at[3];
  int offset[3];
  unsigned dimensions;
  unsigned slice;
  float lod;
  bool cube, compares;
  float reference;
};
#endif

inline unsigned size_at(unsigned size, unsigned level) {
  const unsigned n = size >> level;
  return n ? n : 1;
}

// nullptr outside.
inline char* locate(const metallib_texture* t, PixelPosition p) {
  if (!t || p.level >= t->levels || p.x >= size_at(t->width, p.level) ||
      p.y >= size_at(t->height, p.level) ||
      p.z >= (t->array_length > 1 ? t->array_length : size_at(t->depth, p.level))) {
    return nullptr;
  }
  const auto& level = t->level[p.level];
  return t->address + level.offset + p.z * level.image_bytes + p.y * level.row_bytes +
         (unsigned long)p.x * t->pixel_bytes;
}

inline bool is_integer(const metallib_texture* t) {
  switch (t->component) {
    case METALLIB_UINT8:
    case METALLIB_SINT8:
    case METALLIB_UINT16:
    case METALLIB_SINT16:
    case METALLIB_UINT32:
    case METALLIB_SINT32:
      return true;
    default:
      return false;
  }
}

template <class T>
inline T get(const char* from) {
  T v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class T>
inline void put(char* to, T v) {
  __builtin_memcpy(to, &v, sizeof v);
}
constexpr unsigned kBytes[] = {1, 1, 1, 1, 2, 2, 2, 2, 2, 4, 4, 4};

inline float limit(float v, float low, float high) {  // NaN becomes low
  return v > low ? (v < high ? v : high) : low;
}
inline float from_srgb(float v) {
  return v <= 0.04045f ? v / 12.92f : MSL_LIBM(pow)((v + 0.055f) / 1.055f, 2.4f);
}
inline float to_srgb(float v) {
  return v <= 0.0031308f ? v * 12.92f : 1.055f * MSL_LIBM(pow)(v, 1 / 2.4f) - 0.055f;
}

inline float floating(const char* from, unsigned component) {
  switch (component) {
    case METALLIB_UNORM8:
      return get<unsigned char>(from) / 255.0f;
    case METALLIB_SNORM8:
      return limit(get<signed char>(from) / 127.0f, -1, 1);
    case METALLIB_UNORM16:
      return get<unsigned short>(from) / 65535.0f;
    case METALLIB_SNORM16:
      return limit(get<short>(from) / 32767.0f, -1, 1);
    case METALLIB_FLOAT16:
      return float(get<_Float16>(from));
    case METALLIB_FLOAT32:
      return get<float>(from);
    default:
      return 0;
  }
}
inline void store_floating(char* to, unsigned component, float v) {
  switch (component) {
    case METALLIB_UNORM8:
      return put(to, (unsigned char)__builtin_rintf(limit(v, 0, 1) * 255));
    case METALLIB_SNORM8:
      return put(to, (signed char)__builtin_rintf((v == v ? limit(v, -1, 1) : 0) * 127));
    case METALLIB_UNORM16:
      return put(to, (unsigned short)__builtin_rintf(limit(v, 0, 1) * 65535));
    case METALLIB_SNORM16:
      return put(to, (short)__builtin_rintf((v == v ? limit(v, -1, 1) : 0) * 32767));
    case METALLIB_FLOAT16:
      return put(to, _Float16(v));
    case METALLIB_FLOAT32:
      return put(to, v);
    default:
      return;
  }
}
inline int integer(const char* from, unsigned component) {
  switch (component) {
    case METALLIB_UINT8:
      return get<unsigned char>(from);
    case METALLIB_SINT8:
      return get<signed char>(from);
    case METALLIB_UINT16:
      return get<unsigned short>(from);
    case METALLIB_SINT16:
      return get<short>(from);
    case METALLIB_UINT32:
    case METALLIB_SINT32:
      return get<int>(from);
    default:
      return 0;
  }
}
// Out of range saturates.
inline void store_integer(char* to, unsigned component, int bits, bool is_signed) {
  const long v = is_signed ? long(bits) : long(unsigned(bits));
  auto within = [v](long low, long high) { return v < low ? low : v > high ? high : v; };
  switch (component) {
    case METALLIB_UINT8:
      return put(to, (unsigned char)within(0, 255));
    case METALLIB_SINT8:
      return put(to, (signed char)within(-128, 127));
    case METALLIB_UINT16:
      return put(to, (unsigned short)within(0, 65535));
    case METALLIB_SINT16:
      return put(to, (short)within(-32768, 32767));
    case METALLIB_UINT32:
      return put(to, (unsigned)within(0, 4294967295));
    case METALLIB_SINT32:
      return put(to, (int)within(-2147483648l, 2147483647));
    default:
      return;
  }
}

// The channel, of red, green, blue, alpha, of the stored component i.
inline unsigned channel(const metallib_texture* t, unsigned i) {
  if (t->flags & METALLIB_TEXTURE_ALPHA_ONLY) return 3;
  return t->flags & METALLIB_TEXTURE_BGRA && i < 3 ? 2 - i : i;
}

inline void fetch(const metallib_texture* t, const char* from, float* out) {
  out[0] = out[1] = out[2] = 0;
  out[3] = 1;
  for (unsigned i = 0; i < t->components; ++i) {
    const unsigned c = channel(t, i);
    float v = floating(from + i * kBytes[t->component], t->component);
    if (t->flags & METALLIB_TEXTURE_SRGB && c < 3) v = from_srgb(v);
    out[c] = v;
  }
}
inline void fetch(const metallib_texture* t, const char* from, int* out) {
  out[0] = out[1] = out[2] = 0;
  out[3] = 1;
  for (unsigned i = 0; i < t->components; ++i) {
    out[channel(t, i)] = integer(from + i * kBytes[t->component], t->component);
  }
}
template <class V>
inline void swizzle(const metallib_texture* t, V* pixel) {
  const V from[6] = {0, 1, pixel[0], pixel[1], pixel[2], pixel[3]};
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned what = t->swizzle >> 8 * i & 0xff;
    pixel[i] = what < 6 ? from[what] : V(0);
  }
}
template <class V>
inline void read(const metallib_texture* t, PixelPosition p, V* out) {
  if (const char* from = locate(t, p)) {
    fetch(t, from, out);
    if (t->flags & METALLIB_TEXTURE_SWIZZLED) swizzle(t, out);
  } else {
    out[0] = out[1] = out[2] = out[3] = 0;
  }
}

// ---- sampling
enum {
  kClampToEdge = 0,
  kMirrorClampToEdge = 1,
  kRepeat = 2,
  kMirrorRepeat = 3,
  kClampToZero = 4,
  kClampToBorder = 5
};

// The pixel that coordinate i means; -1 for the border.
inline int wrap(int i, int n, unsigned mode) {
  if (unsigned(i) < unsigned(n)) return i;
  switch (mode) {
    case kRepeat: {
      const int m = i % n;
      return m < 0 ? m + n : m;
    }
    case kMirrorRepeat: {
      const long period = 2l * n;
      long m = i % period;
      if (m < 0) m += period;
      return int(m < n ? m : period - 1 - m);
    }
    case kMirrorClampToEdge: {
      const int m = i < 0 ? -1 - i : i;
      return m < n ? m : n - 1;
    }
    case kClampToZero:
    case kClampToBorder:
      return -1;
    default:
      return i < 0 ? 0 : n - 1;
  }
}

template <class V>
inline void border(const metallib_texture* t, const metallib_sampler* s, unsigned mode, V* out) {
  const bool white = mode == kClampToBorder && s->border_color == 2;
  out[0] = out[1] = out[2] = white;
  // Black where there is no alpha to be transparent with.
  const bool alpha = t->components == 4 || t->flags & METALLIB_TEXTURE_ALPHA_ONLY;
  out[3] = mode == kClampToZero ? !alpha : s->border_color != 0;
}

// Pixel i of level `level`, by the sampler's rules for coordinates outside.
template <class V>
inline void texel(const metallib_texture* t, const metallib_sampler* s, const int* i,
                  const Sample* what, unsigned level, V* out) {
  const unsigned size[3] = {size_at(t->width, level), size_at(t->height, level),
                            size_at(t->depth, level)};
  unsigned at[3] = {};
  for (unsigned d = 0; d < what->dimensions; ++d) {
    const int w = wrap(i[d], int(size[d]), s->address[d]);
    if (w < 0) return border(t, s, s->address[d], out);
    at[d] = unsigned(w);
  }
  if (t->array_length > 1) {  // slices are clamped
    at[2] = what->slice < t->array_length ? what->slice : t->array_length - 1;
  }
  read(t, {at[0], at[1], at[2], level}, out);
}

// Coordinates in pixels of a level; far away and NaN are brought to where an int can count.
inline void place(const metallib_texture* t, const metallib_sampler* s, const Sample* what,
                  unsigned level, float* at) {
  const unsigned size[3] = {t->width, t->height, t->depth};
  for (unsigned d = 0; d < what->dimensions; ++d) {
    const float scale = s->pixel_coordinates ? float(size_at(size[d], level)) / float(size[d])
                                             : float(size_at(size[d], level));
    at[d] = limit(what->at[d] * scale, -1e9f, 1e9f);
  }
}

// The result of comparing a depth texture's pixel.
inline float compared(float reference, float pixel, unsigned how) {
  const bool less = reference < pixel, equal = reference == pixel, greater = reference > pixel;
  switch (how) {
    case 1:
      return less;
    case 2:
      return equal;
    case 3:
      return less || equal;
    case 4:
      return greater;
    case 5:
      return !equal;
    case 6:
      return greater || equal;
    case 7:
      return 1;
    default:
      return 0;
  }
}
inline void compare(const metallib_sampler* s, const Sample* what, float* pixel) {
  if (what->compares) pixel[0] = compared(what->reference, pixel[0], s->compare);
}
inline void compare(const metallib_sampler*, const Sample*, int*) {}

// ---- cubes
struct OnFace {
  unsigned face;
  float s, t;  // from 0 to 1
};
inline OnFace face_of(const float* d) {
  const float x = __builtin_fabsf(d[0]), y = __builtin_fabsf(d[1]), z = __builtin_fabsf(d[2]);
  float s, t, longest;
  unsigned face;
  if (x >= y && x >= z) {
    face = d[0] < 0, longest = x, s = d[0] < 0 ? d[2] : -d[2], t = -d[1];
  } else if (y >= z) {
    face = 2 + (d[1] < 0), longest = y, s = d[0], t = d[1] < 0 ? -d[2] : d[2];
  } else {
    face = 4 + (d[2] < 0), longest = z, s = d[2] < 0 ? -d[0] : d[0], t = -d[1];
  }
  return {face, limit(s / longest, -1, 1) * 0.5f + 0.5f, limit(t / longest, -1, 1) * 0.5f + 0.5f};
}
// Pixel (x, y) of a face of n x n pixels; past an edge, that of the face which is there.
template <class V>
inline void cube_texel(const metallib_texture* t, const Sample* what, unsigned face, int x, int y,
                       unsigned level, V* out) {
  const int n = int(size_at(t->width, level));
  if (unsigned(x) >= unsigned(n) || unsigned(y) >= unsigned(n)) {
    const float a = float(2 * x + 1) / float(n) - 1, b = float(2 * y + 1) / float(n) - 1;
    const float to[6][3] = {{1, -b, -a}, {-1, -b, a}, {a, 1, b},
                            {a, -1, -b}, {a, -b, 1},  {-a, -b, -1}};
    const OnFace there = face_of(to[face]);
    face = there.face;
    x = int(there.s * float(n)), y = int(there.t * float(n));
    x = x < n ? x : n - 1, y = y < n ? y : n - 1;
  }
  const unsigned last = t->array_length - 1, slice = what->slice + face;
  read(t, {unsigned(x), unsigned(y), slice < last ? slice : last, level}, out);
}

template <class V>
inline void nearest(const metallib_texture* t, const metallib_sampler* s, const Sample* what,
                    unsigned level, V* out) {
  if (what->cube) {
    const OnFace at = face_of(what->at);
    const int n = int(size_at(t->width, level));
    const int x = int(at.s * float(n)), y = int(at.t * float(n));
    cube_texel(t, what, at.face, x < n ? x : n - 1, y < n ? y : n - 1, level, out);
    return compare(s, what, out);
  }
  float at[3];
  int i[3] = {};
  place(t, s, what, level, at);
  for (unsigned d = 0; d < what->dimensions; ++d) {
    i[d] = int(__builtin_floorf(at[d])) + what->offset[d];
  }
  texel(t, s, i, what, level, out);
  compare(s, what, out);
}

inline void linear(const metallib_texture* t, const metallib_sampler* s, const Sample* what,
                   unsigned level, float* out) {
  float at[3], part[3];
  int base[3] = {};
  unsigned dimensions = what->dimensions, face = 0;
  if (what->cube) {
    const OnFace on = face_of(what->at);
    const float n = float(size_at(t->width, level));
    dimensions = 2, face = on.face, at[0] = on.s * n, at[1] = on.t * n;
  } else {
    place(t, s, what, level, at);
  }
  for (unsigned d = 0; d < dimensions; ++d) {
    const float low = __builtin_floorf(at[d] - 0.5f);
    part[d] = at[d] - 0.5f - low;
    base[d] = int(low) + what->offset[d];
  }
  for (int c = 0; c < 4; ++c) out[c] = 0;
  for (unsigned corner = 0; corner < 1u << dimensions; ++corner) {
    int i[3] = {};
    float weight = 1, v[4];
    for (unsigned d = 0; d < dimensions; ++d) {
      const bool upper = corner >> d & 1;
      i[d] = base[d] + upper;
      weight *= upper ? part[d] : 1 - part[d];
    }
    if (weight == 0) continue;
    if (what->cube) {
      cube_texel(t, what, face, i[0], i[1], level, v);
    } else {
      texel(t, s, i, what, level, v);
    }
    compare(s, what, v);
    for (int c = 0; c < 4; ++c) out[c] += weight * v[c];
  }
}

// In MSL's order: lower left, lower right, upper right, upper left of the four, y growing
// downwards.
template <class V>
inline void gather(const metallib_texture* t, const metallib_sampler* s, const Sample* what,
                   unsigned component, V* out) {
  constexpr int kOrder[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  float at[3] = {};
  unsigned face = 0;
  if (t && what->cube) {
    const OnFace on = face_of(what->at);
    face = on.face, at[0] = on.s * float(t->width), at[1] = on.t * float(t->width);
  } else if (t) {
    place(t, s, what, 0, at);
  }
  for (int k = 0; k < 4; ++k) {
    V v[4] = {};
    int i[3] = {};
    for (int d = 0; d < 2; ++d) {
      i[d] = int(__builtin_floorf(at[d] - 0.5f)) + what->offset[d] + kOrder[k][d];
    }
    if (t && what->cube) cube_texel(t, what, face, i[0], i[1], 0, v);
    if (t && !what->cube) texel(t, s, i, what, 0, v);
    if (t) compare(s, what, v);
    out[k] = v[component & 3];
  }
}

}  // namespace

#if defined(__NVPTX__)
#define MSL_TEXTURE_FUNCTION extern "C" inline
#else
#define MSL_TEXTURE_FUNCTION extern "C" __attribute__((visibility("hidden")))
#endif

MSL_TEXTURE_FUNCTION void _msl_texture_read(const metallib_texture* t, PixelPosition at,
                                            float* out) {
  read(t, at, out);
}
MSL_TEXTURE_FUNCTION void _msl_texture_read_integers(const metallib_texture* t, PixelPosition at,
                                                     int* out) {
  read(t, at, out);
}

MSL_TEXTURE_FUNCTION void _msl_texture_write(const metallib_texture* t, PixelPosition at,
                                             const float* pixel) {
  char* to = locate(t, at);
  if (!to) return;
  for (unsigned i = 0; i < t->components; ++i) {
    const unsigned c = channel(t, i);
    float v = pixel[c];
    if (t->flags & METALLIB_TEXTURE_SRGB && c < 3) v = to_srgb(limit(v, 0, 1));
    store_floating(to + i * kBytes[t->component], t->component, v);
  }
}
MSL_TEXTURE_FUNCTION void _msl_texture_write_integers(const metallib_texture* t, PixelPosition at,
                                                      const int* pixel, bool is_signed) {
  char* to = locate(t, at);
  if (!to) return;
  for (unsigned i = 0; i < t->components; ++i) {
    store_integer(to + i * kBytes[t->component], t->component, pixel[channel(t, i)], is_signed);
  }
}

MSL_TEXTURE_FUNCTION char* _msl_texture_place(const metallib_texture* t, PixelPosition at) {
  const bool one = t && t->components == 1 &&
                   (t->component == METALLIB_UINT32 || t->component == METALLIB_SINT32);
  return one ? locate(t, at) : nullptr;
}

MSL_TEXTURE_FUNCTION void _msl_texture_sample(const metallib_texture* t, const metallib_sampler* s,
                                              const Sample* what, float* out) {
  if (!t) {
    for (int c = 0; c < 4; ++c) out[c] = 0;
    return;
  }
  const float lod = limit(what->lod, s->lod_min, s->lod_max);
  const bool mixes = lod > 0 ? s->min_filter : s->mag_filter;
  auto one = [&](unsigned level, float* to) {
    if (mixes) {
      linear(t, s, what, level, to);
    } else {
      nearest(t, s, what, level, to);
    }
  };
  const float top = float(t->levels - 1);
  if (s->mip_filter == 0) return one(0, out);
  if (s->mip_filter == 1) return one(unsigned(limit(__builtin_rintf(lod), 0, top)), out);
  const float at = limit(lod, 0, top);
  const unsigned level = unsigned(at);
  const float part = at - float(level);
  one(level, out);
  if (part == 0) return;
  float next[4];
  one(level + 1, next);
  for (int c = 0; c < 4; ++c) out[c] += part * (next[c] - out[c]);
}
// Integers are not mixed.
MSL_TEXTURE_FUNCTION void _msl_texture_sample_integers(const metallib_texture* t,
                                                       const metallib_sampler* s,
                                                       const Sample* what, int* out) {
  if (!t) {
    for (int c = 0; c < 4; ++c) out[c] = 0;
    return;
  }
  const float lod = s->mip_filter ? limit(what->lod, s->lod_min, s->lod_max) : 0;
  nearest(t, s, what, unsigned(limit(__builtin_rintf(lod), 0, float(t->levels - 1))), out);
}

MSL_TEXTURE_FUNCTION void _msl_texture_gather(const metallib_texture* t, const metallib_sampler* s,
                                              const Sample* what, unsigned component, float* out) {
  gather(t, s, what, component, out);
}
MSL_TEXTURE_FUNCTION void _msl_texture_gather_integers(const metallib_texture* t,
                                                       const metallib_sampler* s,
                                                       const Sample* what, unsigned component,
                                                       int* out) {
  gather(t, s, what, component, out);
}
