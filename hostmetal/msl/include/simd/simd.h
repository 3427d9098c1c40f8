// simd/simd.h: the driver's prelude (lib/prelude.h) brings what this header declares.
