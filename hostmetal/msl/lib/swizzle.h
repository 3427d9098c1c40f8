// Swizzles (v.xy, v.bgr = c) as Microsoft properties: no storage, plain calls of get_/put_
// functions. Included inside the body of a vector class that has T and the members x, y (, z (,
// w)).
#if !defined(MSL_SWIZZLE_MACROS)
#define MSL_SWIZZLE_MACROS
#define MSL_CAT_(a, b) a##b
#define MSL_CAT(a, b) MSL_CAT_(a, b)
#define MSL_RGBA_x r
#define MSL_RGBA_y g
#define MSL_RGBA_z b
#define MSL_RGBA_w a
// Aliases with rgba letters are pasted in two steps, so that MSL_RGBA_x has become r before.
#define MSL_NAME2(a, b) a##b
#define MSL_NAME3(a, b, c) a##b##c
#define MSL_NAME4(a, b, c, d) a##b##c##d
#define MSL_ALIAS2(a, b) MSL_NAME2(a, b)
#define MSL_ALIAS3(a, b, c) MSL_NAME3(a, b, c)
#define MSL_ALIAS4(a, b, c, d) MSL_NAME4(a, b, c, d)

// R: readable only (a letter repeats); W: may be assigned too.
#define MSL_R2(a, b)                                                 \
  constexpr vec<T, 2> get_##a##b() const { return vec<T, 2>(a, b); } \
  __declspec(property(get = get_##a##b)) vec<T, 2> a##b;             \
  __declspec(property(get = get_##a##b)) vec<T, 2> MSL_ALIAS2(MSL_RGBA_##a, MSL_RGBA_##b);
#define MSL_W2(a, b)                                                                          \
  constexpr vec<T, 2> get_##a##b() const { return vec<T, 2>(a, b); }                          \
  constexpr void put_##a##b(vec<T, 2> v) { a = v.x, b = v.y; }                                \
  __declspec(property(get = get_##a##b, put = put_##a##b)) vec<T, 2> a##b;                    \
  __declspec(property(get = get_##a##b, put = put_##a##b)) vec<T, 2> MSL_ALIAS2(MSL_RGBA_##a, \
                                                                                MSL_RGBA_##b);
#define MSL_R3(a, b, c)                                                                      \
  constexpr vec<T, 3> get_##a##b##c() const { return vec<T, 3>(a, b, c); }                   \
  __declspec(property(get = get_##a##b##c)) vec<T, 3> a##b##c;                               \
  __declspec(property(get = get_##a##b##c)) vec<T, 3> MSL_ALIAS3(MSL_RGBA_##a, MSL_RGBA_##b, \
                                                                 MSL_RGBA_##c);
#define MSL_W3(a, b, c)                                                                \
  constexpr vec<T, 3> get_##a##b##c() const { return vec<T, 3>(a, b, c); }             \
  constexpr void put_##a##b##c(vec<T, 3> v) { a = v.x, b = v.y, c = v.z; }             \
  __declspec(property(get = get_##a##b##c, put = put_##a##b##c)) vec<T, 3> a##b##c;    \
  __declspec(property(get = get_##a##b##c, put = put_##a##b##c)) vec<T, 3> MSL_ALIAS3( \
      MSL_RGBA_##a, MSL_RGBA_##b, MSL_RGBA_##c);
#define MSL_R4(a, b, c, d)                                                                      \
  constexpr vec<T, 4> get_##a##b##c##d() const { return vec<T, 4>(a, b, c, d); }                \
  __declspec(property(get = get_##a##b##c##d)) vec<T, 4> a##b##c##d;                            \
  __declspec(property(get = get_##a##b##c##d)) vec<T, 4> MSL_ALIAS4(MSL_RGBA_##a, MSL_RGBA_##b, \
                                                                    MSL_RGBA_##c, MSL_RGBA_##d);
#define MSL_W4(a, b, c, d)                                                                   \
  constexpr vec<T, 4> get_##a##b##c##d() const { return vec<T, 4>(a, b, c, d); }             \
  constexpr void put_##a##b##c##d(vec<T, 4> v) { a = v.x, b = v.y, c = v.z, d = v.w; }       \
  __declspec(property(get = get_##a##b##c##d, put = put_##a##b##c##d)) vec<T, 4> a##b##c##d; \
  __declspec(property(get = get_##a##b##c##d, put = put_##a##b##c##d)) vec<T, 4> MSL_ALIAS4( \
      MSL_RGBA_##a, MSL_RGBA_##b, MSL_RGBA_##c, MSL_RGBA_##d);
#define MSL_COMPONENT_ALIAS(letter, component)              \
  constexpr T get_##component() const { return component; } \
  constexpr void put_##component(T v) { component = v; }    \
  __declspec(property(get = get_##component, put = put_##component)) T letter;
#endif
