// The name of a type that Metal's interface mentions; surfaces themselves there are none.
#ifndef HOSTMETAL_IOSURFACE_IOSURFACEREF_H_
#define HOSTMETAL_IOSURFACE_IOSURFACEREF_H_

typedef struct __IOSurface* IOSurfaceRef;

#endif  // HOSTMETAL_IOSURFACE_IOSURFACEREF_H_
