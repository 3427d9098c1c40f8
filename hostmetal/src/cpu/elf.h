// The checks of a .metallib's bytes before the loader may see them.
#ifndef HOSTMETAL_SRC_CPU_ELF_H_
#define HOSTMETAL_SRC_CPU_ELF_H_

#include <string>
#include <string_view>

namespace hostmetal {

// Why these bytes are no library of metallib_abi.h for this processor, as the end of a sentence;
// "" where they are one. Nothing in them has run by then, and nothing runs when such a library is
// loaded: it has no constructors and asks for no libraries but C's.
std::string WhyNoMetallib(std::string_view bytes);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CPU_ELF_H_
