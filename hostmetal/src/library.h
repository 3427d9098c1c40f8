// MTLLibrary, MTLFunction and the values of function constants.
#ifndef HOSTMETAL_SRC_LIBRARY_H_
#define HOSTMETAL_SRC_LIBRARY_H_

#import <Metal/Metal.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hostmetal/src/device.h"
#include "hostmetal/src/driver.h"

namespace hostmetal {

struct ConstantValue {
  MTLDataType type;
  std::array<uint8_t, 16> bytes;
};
// Bytes of one value in MSL's layout; 0 for types that cannot be function constants.
size_t ConstantSize(MTLDataType type);

struct LibraryState {
  std::shared_ptr<Module> module;
  std::map<std::string, const metallib_kernel*> kernels;
  NSUInteger max_threads = 0;  // MTLCompileOptions' limit, or 0
};

}  // namespace hostmetal

struct HMConstantValues {
  std::map<NSUInteger, hostmetal::ConstantValue> by_index;
  std::map<std::string, hostmetal::ConstantValue> by_name;
};

@interface HMLibrary : HMLabelled <MTLLibrary> {
 @public
  HMDevice* _device;
  hostmetal::LibraryState* _state;
}
- (id)initWithDevice:(HMDevice*)device module:(std::shared_ptr<hostmetal::Module>)module;
@end

@interface HMFunction : HMLabelled <MTLFunction> {
 @public
  HMDevice* _device;
  std::shared_ptr<hostmetal::Module>* _module;
  const metallib_kernel* _entry;
  std::vector<metallib_constant_value>* _constants;
  NSString* _specializedName;
  MTLFunctionOptions _functionOptions;
  NSUInteger _maxThreads;  // of the library's compile options, or 0
}
@end

#endif  // HOSTMETAL_SRC_LIBRARY_H_
