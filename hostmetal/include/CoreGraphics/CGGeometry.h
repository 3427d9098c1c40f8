// CoreGraphics' points, sizes and rectangles, which metal-cpp includes for its layers' sake; of
// drawing there is nothing.
#ifndef HOSTMETAL_COREGRAPHICS_CGGEOMETRY_H_
#define HOSTMETAL_COREGRAPHICS_CGGEOMETRY_H_

#ifdef __OBJC__
#include <Foundation/NSGeometry.h>
typedef NSPoint CGPoint;
typedef NSSize CGSize;
typedef NSRect CGRect;
#else
typedef double CGFloat;
typedef struct CGPoint {
  CGFloat x, y;
} CGPoint;
typedef struct CGSize {
  CGFloat width, height;
} CGSize;
typedef struct CGRect {
  CGPoint origin;
  CGSize size;
} CGRect;
#endif

static inline CGPoint CGPointMake(CGFloat x, CGFloat y) {
  CGPoint point = {x, y};
  return point;
}
static inline CGSize CGSizeMake(CGFloat width, CGFloat height) {
  CGSize size = {width, height};
  return size;
}
static inline CGRect CGRectMake(CGFloat x, CGFloat y, CGFloat width, CGFloat height) {
  CGRect rect = {{x, y}, {width, height}};
  return rect;
}

#endif  // HOSTMETAL_COREGRAPHICS_CGGEOMETRY_H_
