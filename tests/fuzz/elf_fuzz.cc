// libFuzzer's way into the checks of a .metallib before it is loaded: `make fuzz`.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "hostmetal/src/cpu/elf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string why = hostmetal::WhyNoMetallib({reinterpret_cast<const char*>(data), size});
  // A library has a checksum that no mutation will find; the seed itself is one.
  if (!why.empty() && why.size() < 10) abort();
  return 0;
}
