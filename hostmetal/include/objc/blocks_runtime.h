// GNUstep's headers ask for this name when the compiler has blocks; on Debian no package provides
// it.
#include <Block.h>
