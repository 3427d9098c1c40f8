// simd/types.h: the driver's prelude (lib/prelude.h) declares its contents.
