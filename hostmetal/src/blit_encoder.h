// MTLBlitCommandEncoder.
#ifndef HOSTMETAL_SRC_BLIT_ENCODER_H_
#define HOSTMETAL_SRC_BLIT_ENCODER_H_

#include "hostmetal/src/encoder.h"

@interface HMBlitCommandEncoder : HMEncoder <MTLBlitCommandEncoder>
@end

#endif  // HOSTMETAL_SRC_BLIT_ENCODER_H_
