// A digest that tells contents apart: FNV-1a with 128 bits. It does not stop an attacker from
// making two contents of one digest.
#ifndef HOSTMETAL_SRC_DIGEST_H_
#define HOSTMETAL_SRC_DIGEST_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace hostmetal {

class Digest {
 public:
  void Bytes(std::string_view bytes) {
    for (unsigned char byte : bytes) value_ = (value_ ^ byte) * kPrime;
  }
  // Bytes and where they end.
  void Part(std::string_view bytes) {
    const uint64_t size = bytes.size();
    Bytes({reinterpret_cast<const char*>(&size), sizeof size});
    Bytes(bytes);
  }
  // 16 bytes.
  std::string Value() const { return {reinterpret_cast<const char*>(&value_), sizeof value_}; }

 private:
  using Wide = unsigned __int128;
  static constexpr Wide kPrime = (Wide{1} << 88) + 0x13b;
  Wide value_ = (Wide{0x6c62272e07bb0142} << 64) + 0x62b821756295c58d;
};

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_DIGEST_H_
