// The layout of a buffer's elements, as the shader compiler describes it (python/metal_ops/metal/members.py).
#ifndef HOSTMETAL_SRC_STRUCT_TYPE_H_
#define HOSTMETAL_SRC_STRUCT_TYPE_H_

#import <Metal/Metal.h>

#include <memory>
#include <string>
#include <vector>

#include "hostmetal/msl/metallib_abi.h"

namespace hostmetal {

struct Member;

struct Type {
  MTLDataType data_type = MTLDataTypeNone;
  std::string texture;                  // MSL's words
  bool written = false;                 // through a pointer
  size_t size = 0, alignment = 0;       // of a pointer's target
  size_t length = 0, stride = 0;        // of an array
  std::shared_ptr<const Type> element;  // of a pointer or an array
  std::vector<Member> members;          // of a struct

  // How many argument indices it takes.
  size_t Indices() const;
};

struct Member {
  std::string name;
  size_t offset = 0;
  size_t index = 0;  // [[id(n)]]
  std::shared_ptr<const Type> type;
};

// The type of a buffer's elements. Without members for a struct of which the library does not say
// more.
std::shared_ptr<const Type> TypeOf(const metallib_argument& argument);

// nullptr where the argument is no struct, or its library does not say.
std::shared_ptr<const Type> StructOf(const metallib_argument& argument);

std::shared_ptr<const Type> StructOf(MTLStructType* type);

// Bytes of one value of a type that MSL has a name for, in a struct: 0 for others.
size_t SizeInStruct(MTLDataType type);

// The type of MSL's name of a scalar or vector; MTLDataTypeStruct for other names.
MTLDataType ScalarType(const std::string& name);

MTLStructType* NewStructType(std::shared_ptr<const Type> type);
MTLPointerType* NewPointerType(std::shared_ptr<const Type> type);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_STRUCT_TYPE_H_
