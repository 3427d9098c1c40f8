// Part of atomic.h, in its namespace: atomics that are instructions of the GPU. The optimiser leaves out
// results that are never read.

MSL_ATOMICS(device, MSL_UPDATE_ATOMIC)
MSL_ATOMICS(threadgroup, MSL_UPDATE_ATOMIC)

#define MSL_ATOMIC_NATIVE(SPACE, T, name)                                                       \
  inline T atomic_fetch_##name##_explicit(volatile SPACE atomic<T>* object, T value,            \
                                          memory_order order) {                                 \
    const _msl::Ordered ordered(order);                                                         \
    return __atomic_fetch_##name((SPACE T*)&object->_value, value, __ATOMIC_RELAXED);           \
  }
#define MSL_ATOMIC_NATIVE_INTEGER(SPACE, T)                                                     \
  MSL_ATOMIC_NATIVE(SPACE, T, add)                                                              \
  MSL_ATOMIC_NATIVE(SPACE, T, sub)                                                              \
  MSL_ATOMIC_NATIVE(SPACE, T, min)                                                              \
  MSL_ATOMIC_NATIVE(SPACE, T, max)                                                              \
  MSL_ATOMIC_NATIVE(SPACE, T, and)                                                              \
  MSL_ATOMIC_NATIVE(SPACE, T, or)                                                               \
  MSL_ATOMIC_NATIVE(SPACE, T, xor)                                                              \
  inline T atomic_exchange_explicit(volatile SPACE atomic<T>* object, T value,                      \
                                    memory_order order) {                                       \
    const _msl::Ordered ordered(order);                                                         \
    return __atomic_exchange_n((SPACE T*)&object->_value, value, __ATOMIC_RELAXED);             \
  }
#define MSL_ATOMIC_NATIVE_SPACE(SPACE)                                                          \
  MSL_ATOMIC_NATIVE_INTEGER(SPACE, int)                                                         \
  MSL_ATOMIC_NATIVE_INTEGER(SPACE, uint)                                                        \
  MSL_ATOMIC_NATIVE_INTEGER(SPACE, ulong)                                                       \
  MSL_ATOMIC_NATIVE(SPACE, float, add)                                                          \
  inline float atomic_fetch_sub_explicit(volatile SPACE atomic<float>* object, float value,     \
                                         memory_order order) {                                  \
    return atomic_fetch_add_explicit(object, -value, order);                                    \
  }
MSL_ATOMIC_NATIVE_SPACE(device)
MSL_ATOMIC_NATIVE_SPACE(threadgroup)
