// The name of a colour space, which metal-cpp's layer of windows has; there are no windows here.
#ifndef HOSTMETAL_COREGRAPHICS_CGCOLORSPACE_H_
#define HOSTMETAL_COREGRAPHICS_CGCOLORSPACE_H_

typedef struct CGColorSpace* CGColorSpaceRef;

#endif  // HOSTMETAL_COREGRAPHICS_CGCOLORSPACE_H_
