// Part of <simd/types.h> here.
#include <simd/types.h>
