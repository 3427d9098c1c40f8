// The smaller levels of a texture, made of the largest.
#ifndef HOSTMETAL_SRC_MIPMAPS_H_
#define HOSTMETAL_SRC_MIPMAPS_H_

#include <string>

#include "hostmetal/src/encoder.h"
#include "hostmetal/src/texture.h"

namespace hostmetal {

// Encodes the commands that make them; why it cannot, or "".
std::string EncodeMipmaps(HMEncoder* encoder, HMTexture* texture);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_MIPMAPS_H_
