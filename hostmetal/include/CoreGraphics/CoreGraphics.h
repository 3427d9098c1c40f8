// Points, sizes and rectangles; of drawing there is nothing.
#ifndef HOSTMETAL_COREGRAPHICS_COREGRAPHICS_H_
#define HOSTMETAL_COREGRAPHICS_COREGRAPHICS_H_

#include <CoreGraphics/CGColorSpace.h>
#include <CoreGraphics/CGGeometry.h>

#endif  // HOSTMETAL_COREGRAPHICS_COREGRAPHICS_H_
