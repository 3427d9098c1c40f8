// Sizes of grids and threadgroups.
#ifndef HOSTMETAL_MTLTYPES_H_
#define HOSTMETAL_MTLTYPES_H_

#import <Metal/MTLDefines.h>

typedef struct {
  NSUInteger width, height, depth;
} MTLSize;

static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  MTLSize size = {width, height, depth};
  return size;
}

#endif  // HOSTMETAL_MTLTYPES_H_
