// MTLLibrary, MTLFunction, function constants and compile options.
#include <string.h>

#include "hostmetal/src/argument_encoder.h"
#include "hostmetal/src/errors.h"
#include "hostmetal/src/library.h"
#include "hostmetal/src/pipeline.h"

using hostmetal::ConstantValue;
using hostmetal::NoError;
using hostmetal::Refuse;
using hostmetal::ToString;

namespace hostmetal {

// The compiler's numbers are Metal's.
#define SAME_TYPE(ours, metals) \
  static_assert(uint32_t(METALLIB_TYPE_##ours) == uint32_t(MTLDataType##metals), #metals)
SAME_TYPE(FLOAT, Float);
SAME_TYPE(HALF, Half);
SAME_TYPE(INT, Int);
SAME_TYPE(UINT, UInt);
SAME_TYPE(SHORT, Short);
SAME_TYPE(USHORT, UShort);
SAME_TYPE(CHAR, Char);
SAME_TYPE(UCHAR, UChar);
SAME_TYPE(BOOL, Bool);
SAME_TYPE(LONG, Long);
SAME_TYPE(ULONG, ULong);
SAME_TYPE(BFLOAT, BFloat);
#undef SAME_TYPE

size_t ConstantSize(MTLDataType type) {
  struct Family {
    NSUInteger scalar;
    size_t bytes;
  };
  // Scalars with their vectors of 2, 3 and 4 right behind; a vector of 3 takes the room of 4.
  static constexpr Family kFamilies[] = {
      {MTLDataTypeFloat, 4}, {MTLDataTypeHalf, 2},   {MTLDataTypeInt, 4},   {MTLDataTypeUInt, 4},
      {MTLDataTypeShort, 2}, {MTLDataTypeUShort, 2}, {MTLDataTypeChar, 1},  {MTLDataTypeUChar, 1},
      {MTLDataTypeBool, 1},  {MTLDataTypeLong, 8},   {MTLDataTypeULong, 8}, {MTLDataTypeBFloat, 2},
  };
  static constexpr size_t kWidth[] = {1, 2, 4, 4};
  for (const Family& f : kFamilies) {
    if (type >= f.scalar && type < f.scalar + 4) {
      size_t size = f.bytes * kWidth[type - f.scalar];
      return size <= 16 ? size : 0;
    }
  }
  return 0;
}

}  // namespace hostmetal

// ---- function constants

@implementation MTLFunctionConstantValues

- (id)init {
  self = [super init];
  if (self) _values = new HMConstantValues;
  return self;
}
- (void)dealloc {
  delete _values;
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLFunctionConstantValues* copy = [[MTLFunctionConstantValues alloc] init];
  *copy->_values = *_values;
  return copy;
}

static ConstantValue Value(const void* bytes, MTLDataType type) {
  ConstantValue value{type, {}};
  if (size_t size = hostmetal::ConstantSize(type)) memcpy(value.bytes.data(), bytes, size);
  return value;
}

- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  _values->by_index[index] = Value(value, type);
}
- (void)setConstantValues:(const void*)values type:(MTLDataType)type withRange:(NSRange)range {
  size_t size = hostmetal::ConstantSize(type);
  for (NSUInteger i = 0; i < range.length; ++i) {
    _values->by_index[range.location + i] =
        Value(static_cast<const char*>(values) + i * size, type);
  }
}
- (void)setConstantValue:(const void*)value type:(MTLDataType)type withName:(NSString*)name {
  _values->by_name[ToString(name)] = Value(value, type);
}
- (void)reset {
  *_values = {};
}
- (const HMConstantValues&)hm_values {
  return *_values;
}

@end

@interface MTLFunctionConstantValues (Hostmetal)
- (const HMConstantValues&)hm_values;
@end

@interface MTLFunctionConstant (Hostmetal)
- (id)initWithConstant:(const metallib_function_constant&)constant;
@end

@implementation MTLFunctionConstant
- (id)initWithConstant:(const metallib_function_constant&)constant {
  self = [super init];
  if (self) {
    _name = [[NSString alloc] initWithUTF8String:constant.name];
    _type = MTLDataType(constant.data_type);
    _index = constant.index;
    _required = constant.flags & METALLIB_CONSTANT_REQUIRED;
  }
  return self;
}
- (void)dealloc {
  [_name release];
  [super dealloc];
}
- (NSString*)name {
  return _name;
}
- (MTLDataType)type {
  return _type;
}
- (NSUInteger)index {
  return _index;
}
- (BOOL)required {
  return _required;
}
@end

// ---- functions

@implementation HMFunction
- (void)dealloc {
  [_specializedName release];
  delete _constants;
  delete _module;
  [super dealloc];
}
- (NSString*)description {
  return [NSString stringWithFormat:@"<MTLFunction '%@'>", [self name]];
}
- (id<MTLDevice>)device {
  return _device;
}
- (MTLFunctionType)functionType {
  return _entry->flags & METALLIB_KERNEL_VISIBLE ? MTLFunctionTypeVisible : MTLFunctionTypeKernel;
}
- (NSString*)name {
  return _specializedName ? _specializedName : [NSString stringWithUTF8String:_entry->name];
}
- (MTLFunctionOptions)options {
  return _functionOptions;
}
- (id<MTLArgumentEncoder>)newArgumentEncoderWithBufferIndex:(NSUInteger)index {
  return [self newArgumentEncoderWithBufferIndex:index reflection:nullptr];
}
- (id<MTLArgumentEncoder>)newArgumentEncoderWithBufferIndex:(NSUInteger)index
                                                 reflection:(MTLArgument**)reflection {
  for (uint32_t i = 0; i < _entry->n_arguments; ++i) {
    const metallib_argument& a = _entry->arguments[i];
    if ((a.kind != METALLIB_DEVICE && a.kind != METALLIB_CONSTANT) || a.index != index) continue;
    auto type = hostmetal::StructOf(a);
    if (!type) break;
    if (reflection) *reflection = [[[MTLArgument alloc] initWithInfo:&a owner:self] autorelease];
    return hostmetal::NewArgumentEncoder(_device, type, a.pointee_size, a.pointee_alignment);
  }
  fprintf(stderr,
          "[newArgumentEncoderWithBufferIndex:] buffer(%lu) of '%s' is not there, or no struct\n",
          (unsigned long)index, _entry->name);
  return nil;
}
- (NSDictionary*)functionConstantsDictionary {
  NSMutableDictionary* all = [NSMutableDictionary dictionary];
  for (uint32_t i = 0; i < _entry->n_constants; ++i) {
    if (_entry->constants[i].flags & METALLIB_CONSTANT_UNUSED) continue;
    MTLFunctionConstant* constant =
        [[[MTLFunctionConstant alloc] initWithConstant:_entry->constants[i]] autorelease];
    [all setObject:constant forKey:[constant name]];
  }
  return all;
}
@end

// ---- libraries

@implementation HMLibrary

- (id)initWithDevice:(HMDevice*)device module:(std::shared_ptr<hostmetal::Module>)module {
  self = [super init];
  if (self) {
    _device = device;
    _state = new hostmetal::LibraryState;
    _state->module = std::move(module);
    for (const metallib_kernel* kernel : _state->module->kernels()) {
      _state->kernels[kernel->name] = kernel;
    }
  }
  return self;
}
- (void)dealloc {
  delete _state;
  [super dealloc];
}
- (id<MTLDevice>)device {
  return _device;
}
- (NSArray*)functionNames {
  NSMutableArray* names = [NSMutableArray array];
  for (const auto& entry : _state->kernels) {
    [names addObject:hostmetal::ToNSString(entry.first)];
  }
  return names;
}

- (HMFunction*)newFunction:(NSString*)name error:(NSError**)error {
  NoError(error);
  auto found = _state->kernels.find(ToString(name));
  if (found == _state->kernels.end()) {
    std::string known;
    for (const auto& entry : _state->kernels) {
      if (known.size() > 400) {
        known += ", ...";
        break;
      }
      known += (known.empty() ? "" : ", ") + entry.first;
    }
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorFunctionNotFound,
                  "[newFunctionWithName] the library has no function '" + ToString(name) +
                      "'; it has: " + known);
  }
  HMFunction* function = [[HMFunction alloc] init];
  function->_device = _device;
  function->_module = new std::shared_ptr<hostmetal::Module>(_state->module);
  function->_entry = found->second;
  function->_constants = new std::vector<metallib_constant_value>(found->second->n_constants);
  function->_maxThreads = _state->max_threads;
  return function;
}

- (id<MTLFunction>)newFunctionWithName:(NSString*)name {
  return [self newFunction:name error:nullptr];
}

- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)constantValues
                                 error:(NSError**)error {
  HMFunction* function = [self newFunction:name error:error];
  if (!function) return nil;
  static const HMConstantValues kNone;
  const HMConstantValues& values = constantValues ? [constantValues hm_values] : kNone;
  const metallib_kernel* entry = function->_entry;
  for (uint32_t i = 0; i < entry->n_constants; ++i) {
    const metallib_function_constant& constant = entry->constants[i];
    std::string label = std::string("function constant ") + std::to_string(constant.index) + " ('" +
                        constant.name + "') of function '" + entry->name + "'";
    const ConstantValue* value = nullptr;
    auto at = values.by_index.find(constant.index);
    if (at != values.by_index.end()) value = &at->second;
    auto named = values.by_name.find(constant.name);
    if (named != values.by_name.end()) value = &named->second;
    if (!value) {
      if (!(constant.flags & METALLIB_CONSTANT_REQUIRED)) continue;
      [function release];
      return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                    "[newFunctionWithName] " + label + " has no value");
    }
    if (value->type != constant.data_type && constant.flags & METALLIB_CONSTANT_UNUSED) continue;
    if (value->type != constant.data_type) {
      [function release];
      return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                    "[newFunctionWithName] " + label + " has MTLDataType " +
                        std::to_string(constant.data_type) + ", the value given has " +
                        std::to_string(NSUInteger(value->type)));
    }
    metallib_constant_value& out = (*function->_constants)[i];
    out.defined = 1;
    memcpy(out.bytes, value->bytes.data(), std::min<size_t>(constant.size, sizeof out.bytes));
  }
  return function;
}

- (void)newFunctionWithName:(NSString*)name
             constantValues:(MTLFunctionConstantValues*)constantValues
          completionHandler:(void (^)(id<MTLFunction>, NSError*))handler {
  MTLFunctionConstantValues* values = [[constantValues copy] autorelease];
  NSString* wanted = [[name copy] autorelease];
  dispatch_async(dispatch_get_global_queue(0, 0), ^{
    NSError* error = nil;
    id<MTLFunction> function = [self newFunctionWithName:wanted constantValues:values error:&error];
    handler([function autorelease], error);
  });
}

- (id<MTLFunction>)newFunctionWithDescriptor:(MTLFunctionDescriptor*)descriptor
                                       error:(NSError**)error {
  auto* function = (HMFunction*)[self newFunctionWithName:[descriptor name]
                                           constantValues:[descriptor constantValues]
                                                    error:error];
  if (function) {
    function->_specializedName = [[descriptor specializedName] copy];
    function->_functionOptions = [descriptor options];
  }
  return function;
}

- (void)newFunctionWithDescriptor:(MTLFunctionDescriptor*)descriptor
                completionHandler:(void (^)(id<MTLFunction>, NSError*))handler {
  MTLFunctionDescriptor* wanted = [[descriptor copy] autorelease];
  dispatch_async(dispatch_get_global_queue(0, 0), ^{
    NSError* error = nil;
    id<MTLFunction> function = [self newFunctionWithDescriptor:wanted error:&error];
    handler([function autorelease], error);
  });
}

- (MTLLibraryType)type {
  return MTLLibraryTypeExecutable;
}
- (NSString*)installName {
  return nil;
}

@end

@implementation MTLFunctionDescriptor
+ (MTLFunctionDescriptor*)functionDescriptor {
  return [[[self alloc] init] autorelease];
}
- (void)dealloc {
  [_name release];
  [_specializedName release];
  [_constantValues release];
  [_binaryArchives release];
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLFunctionDescriptor* copy = [[MTLFunctionDescriptor alloc] init];
  [copy setName:_name];
  [copy setSpecializedName:_specializedName];
  [copy setConstantValues:_constantValues];
  [copy setOptions:_options];
  [copy setBinaryArchives:_binaryArchives];
  return copy;
}
@synthesize name = _name;
@synthesize specializedName = _specializedName;
@synthesize constantValues = _constantValues;
@synthesize options = _options;
@synthesize binaryArchives = _binaryArchives;
@end

// ---- compile options

@implementation MTLCompileOptions
- (id)init {
  self = [super init];
  if (self) {
    _mathMode = MTLMathModeFast;
    _languageVersion = MTLLanguageVersion3_1;
  }
  return self;
}
- (void)dealloc {
  [_preprocessorMacros release];
  [_installName release];
  [_libraries release];
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLCompileOptions* copy = [[MTLCompileOptions alloc] init];
  [copy setPreprocessorMacros:_preprocessorMacros];
  [copy setMathMode:_mathMode];
  [copy setMathFloatingPointFunctions:_mathFloatingPointFunctions];
  [copy setLibraryType:_libraryType];
  [copy setLibraries:_libraries];
  [copy setInstallName:_installName];
  [copy setCompileSymbolVisibility:_compileSymbolVisibility];
  [copy setAllowReferencingUndefinedSymbols:_allowReferencingUndefinedSymbols];
  [copy setOptimizationLevel:_optimizationLevel];
  [copy setPreserveInvariance:_preserveInvariance];
  [copy setMaxTotalThreadsPerThreadgroup:_maxTotalThreadsPerThreadgroup];
  [copy setLanguageVersion:_languageVersion];
  [copy setEnableLogging:_enableLogging];
  return copy;
}
@synthesize preprocessorMacros = _preprocessorMacros;
- (BOOL)fastMathEnabled {
  return _mathMode != MTLMathModeSafe;
}
- (void)setFastMathEnabled:(BOOL)enabled {
  _mathMode = enabled ? MTLMathModeFast : MTLMathModeSafe;
}
@synthesize mathMode = _mathMode;
@synthesize mathFloatingPointFunctions = _mathFloatingPointFunctions;
@synthesize libraryType = _libraryType;
@synthesize libraries = _libraries;
@synthesize installName = _installName;
@synthesize compileSymbolVisibility = _compileSymbolVisibility;
@synthesize allowReferencingUndefinedSymbols = _allowReferencingUndefinedSymbols;
@synthesize optimizationLevel = _optimizationLevel;
@synthesize preserveInvariance = _preserveInvariance;
@synthesize maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;
@synthesize languageVersion = _languageVersion;
@synthesize enableLogging = _enableLogging;
@end
