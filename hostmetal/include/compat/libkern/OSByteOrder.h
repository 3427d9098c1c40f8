// Numbers of another byte order.
#ifndef HOSTMETAL_LIBKERN_OSBYTEORDER_H_
#define HOSTMETAL_LIBKERN_OSBYTEORDER_H_

#include <endian.h>
#include <stdint.h>

#define OSSwapInt16(x) ((uint16_t)__builtin_bswap16(x))
#define OSSwapInt32(x) ((uint32_t)__builtin_bswap32(x))
#define OSSwapInt64(x) ((uint64_t)__builtin_bswap64(x))
#define OSSwapHostToBigInt16(x) ((uint16_t)htobe16(x))
#define OSSwapHostToBigInt32(x) ((uint32_t)htobe32(x))
#define OSSwapHostToBigInt64(x) ((uint64_t)htobe64(x))
#define OSSwapHostToLittleInt16(x) ((uint16_t)htole16(x))
#define OSSwapHostToLittleInt32(x) ((uint32_t)htole32(x))
#define OSSwapHostToLittleInt64(x) ((uint64_t)htole64(x))
#define OSSwapBigToHostInt16(x) ((uint16_t)be16toh(x))
#define OSSwapBigToHostInt32(x) ((uint32_t)be32toh(x))
#define OSSwapBigToHostInt64(x) ((uint64_t)be64toh(x))
#define OSSwapLittleToHostInt16(x) ((uint16_t)le16toh(x))
#define OSSwapLittleToHostInt32(x) ((uint32_t)le32toh(x))
#define OSSwapLittleToHostInt64(x) ((uint64_t)le64toh(x))

#endif  // HOSTMETAL_LIBKERN_OSBYTEORDER_H_
