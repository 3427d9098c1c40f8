// MetalKit, which compute programs include by habit: Metal, and names that are an error of the compiler that says so.
#ifndef HOSTMETAL_METALKIT_METALKIT_H_
#define HOSTMETAL_METALKIT_METALKIT_H_

#import <CoreGraphics/CoreGraphics.h>
#import <Metal/Metal.h>

#define HOSTMETAL_NO_METALKIT(name)                                                              \
  __attribute__((                                                                                \
      unavailable("hostmetal has nothing of MetalKit, which draws and reads files"))) MTL_EXPORT \
      @interface name : NSObject                                                                 \
  @end
HOSTMETAL_NO_METALKIT(MTKView)
HOSTMETAL_NO_METALKIT(MTKTextureLoader)
HOSTMETAL_NO_METALKIT(MTKMesh)
HOSTMETAL_NO_METALKIT(MTKSubmesh)
HOSTMETAL_NO_METALKIT(MTKMeshBuffer)
HOSTMETAL_NO_METALKIT(MTKMeshBufferAllocator)
#undef HOSTMETAL_NO_METALKIT

#endif  // HOSTMETAL_METALKIT_METALKIT_H_
