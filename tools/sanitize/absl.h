// Included before everything else in sources that are compiled under AddressSanitizer. Abseil lays
// out its hash tables differently there, and TensorFlow, which shares them with us, is compiled
// without.

#include "absl/base/config.h"
#undef ABSL_HAVE_ADDRESS_SANITIZER
