// Part of texture.h: the atomic functions of textures (MSL 3.1), for each kind with its coordinates.
#pragma once

// Atomics of a texture whose pixel lies at `place` for these parameters. MSL has them relaxed.
#define MSL_TEXTURE_ATOMICS(place, ...)                                                         \
  Pixel atomic_load(__VA_ARGS__) const {                                                        \
    return this->atomic_at(                                                                     \
        place, [](auto p) { return atomic_load_explicit(p, memory_order_relaxed); });           \
  }                                                                                             \
  void atomic_store(Pixel v, __VA_ARGS__) const {                                               \
    this->atomic_at(place, [=](auto p) {                                                        \
      atomic_store_explicit(p, v.x, memory_order_relaxed);                                      \
      return v.x;                                                                               \
    });                                                                                         \
  }                                                                                             \
  bool atomic_compare_exchange_weak(__VA_ARGS__, thread Pixel* expected, Pixel desired) const { \
    bool same = false;                                                                          \
    this->atomic_at(place, [&](auto p) {                                                        \
      same = atomic_compare_exchange_weak_explicit(                                             \
          p, &expected->x, desired.x, memory_order_relaxed, memory_order_relaxed);              \
      return desired.x;                                                                         \
    });                                                                                         \
    return same;                                                                                \
  }                                                                                             \
  MSL_TEXTURE_UPDATE(exchange, place, __VA_ARGS__)                                              \
  MSL_TEXTURE_UPDATE(fetch_add, place, __VA_ARGS__)                                             \
  MSL_TEXTURE_UPDATE(fetch_sub, place, __VA_ARGS__)                                             \
  MSL_TEXTURE_UPDATE(fetch_and, place, __VA_ARGS__)                                             \
  MSL_TEXTURE_UPDATE(fetch_or, place, __VA_ARGS__)                                              \
  MSL_TEXTURE_UPDATE(fetch_xor, place, __VA_ARGS__)                                             \
  MSL_TEXTURE_UPDATE(fetch_min, place, __VA_ARGS__)                                             \
  MSL_TEXTURE_UPDATE(fetch_max, place, __VA_ARGS__)
#define MSL_TEXTURE_UPDATE(name, place, ...)                                                     \
  Pixel atomic_##name(__VA_ARGS__, Pixel v) const {                                              \
    return this->atomic_at(                                                                      \
        place, [=](auto p) { return atomic_##name##_explicit(p, v.x, memory_order_relaxed); }); \
  }
