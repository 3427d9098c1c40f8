// Shaders and their compiled pipelines: see shader.h.

#include "kernels/runtime/shader.h"

#import <Foundation/Foundation.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "kernels/runtime/layout.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {

// Objects in it are retained for ever, as their contents are.
struct ShaderLibrary {
  std::string path;  // the first that it was found under; a stand-in where there is none
  std::string content;
  bool is_text = false;  // else compiled
  bool fast_math = false;
  std::mutex mutex;                              // guards `opened`
  std::map<const void*, id<MTLLibrary>> opened;  // by device
};

namespace {

const char* Text(NSError* error) {
  NSString* text = [error localizedDescription];
  return text == nil ? "no reason given" : [text UTF8String];
}

Status DefaultLibraryPath(std::string* path) {
  std::string self;
  RETURN_IF_ERROR(LibraryPath(&self));
  const size_t slash = self.rfind('/') + 1;
  const std::string folder = self.substr(0, slash);
  const std::string stem = self.substr(slash, self.rfind('.') - slash);
  for (const std::string& name : {stem, std::string("metal_ops")}) {
    *path = folder + name + ".metallib";
    if (access(path->c_str(), R_OK) == 0) return Status();
  }
  return NotFound(
      "there is no shader library beside ", self, " (looked for ", stem,
      ".metallib and metal_ops.metallib); build it with 'make build', or with 'python -m "
      "metal_ops build --shaders ...'");
}

Status DefaultLibrary(const ShaderLibrary** library) {
  static const ShaderLibrary* found = nullptr;
  static const Status status = [] {
    std::string path;
    const Status looked = DefaultLibraryPath(&path);
    return looked.ok() ? OpenLibrary(path, &found) : looked;
  }();
  *library = found;
  return status;
}

// One pipeline, being made or made.
struct Entry {
  Entry(id<MTLDevice> device, const ShaderLibrary* library, const Shader& shader)
      : device(device),
        library(library),
        name(shader.name()),
        constants(shader.constants(), shader.constants() + shader.n_constants()) {}

  bool Is(const void* other_device, const ShaderLibrary* other_library,
          const Shader& shader) const {
    return device == other_device && library == other_library && name == shader.name() &&
           std::equal(constants.begin(), constants.end(), shader.constants(),
                      shader.constants() + shader.n_constants());
  }

  const id<MTLDevice> device;
  const ShaderLibrary* const library;
  const std::string name;
  const std::vector<Shader::Value> constants;
  std::mutex making;
  std::atomic<bool> made{false};
  Pipeline pipeline;
};

struct Cache {
  std::shared_mutex mutex;
  std::unordered_multimap<uint64_t, std::unique_ptr<Entry>> entries;  // by the shader's hash
  std::atomic<int64_t> built{0};

  Entry* Find(id<MTLDevice> device, const ShaderLibrary* library, const Shader& shader) const {
    const auto [begin, end] = entries.equal_range(shader.hash());
    for (auto it = begin; it != end; ++it) {
      if (it->second->Is(device, library, shader)) return it->second.get();
    }
    return nullptr;
  }
};

Cache& GetCache() {
  static Cache* cache = new Cache();
  return *cache;
}

// The error of a shader that macOS 13 does not have.
std::string NoBfloat(const std::string& what) {
  return StrCat(
      what, " calculates in bfloat16, which shaders have from macOS 14 on, and this library is "
            "built for macOS 13; use float32 or float16, place the op on the CPU, or build it for "
            "macOS 14: 'make metal MACOS_OF_METAL=14.0'");
}

id<MTLLibrary> Load(const ShaderLibrary& library, id<MTLDevice> device, NSError** error) {
  // The bytes whose content was compared, and not the present file of that path.
  dispatch_data_t data = dispatch_data_create(library.content.data(), library.content.size(), nil,
                                              DISPATCH_DATA_DESTRUCTOR_DEFAULT);
  id<MTLLibrary> loaded = [device newLibraryWithData:data error:error];
  dispatch_release(data);
  return loaded;
}

id<MTLLibrary> Compile(const ShaderLibrary& library, id<MTLDevice> device, NSError** error) {
  MTLCompileOptions* options = [[[MTLCompileOptions alloc] init] autorelease];
  // macOS 15 has a better name for it, older ones this one alone.
  [options setFastMathEnabled:library.fast_math];
  // As files of shaders are read, also where Metal is newer: the host knows no more types than those.
  if (!kShadersHaveBfloat) [options setLanguageVersion:MTLLanguageVersion3_0];
  NSString* text = [NSString stringWithUTF8String:library.content.c_str()];
  return [device newLibraryWithSource:text options:options error:error];
}

Status Opened(const ShaderLibrary* library, id<MTLDevice> device, id<MTLLibrary>* opened) {
  ShaderLibrary& mine = *const_cast<ShaderLibrary*>(library);
  const std::lock_guard<std::mutex> lock(mine.mutex);
  id<MTLLibrary>& entry = mine.opened[device];
  if (entry == nil) {
    NSError* error = nil;
    entry = mine.is_text ? Compile(mine, device, &error) : Load(mine, device, &error);
    if (entry == nil) {
      mine.opened.erase(device);
      // The compiler's message about the text stands alone: its reader knows lines and columns.
      if (mine.is_text && [error code] == MTLLibraryErrorCompileFailure) {
        std::string said = Text(error);
        const bool is_bfloat = !kShadersHaveBfloat && said.find("'bfloat") != std::string::npos;
        return InvalidArgument(is_bfloat ? NoBfloat("the text of a shader") : std::move(said));
      }
      return NotFound("cannot load the shader library ", mine.path, ": ", Text(error),
                      mine.path[0] == '(' ? "" : "; rebuild it with 'make build'");
    }
  }
  *opened = entry;
  return Status();
}

std::vector<std::string> FunctionNames(id<MTLLibrary> library) {
  std::vector<std::string> names;
  for (NSString* name in [library functionNames]) names.push_back([name UTF8String]);
  return names;
}

Status NewFunction(id<MTLLibrary> library, const Entry& entry, id<MTLFunction>* function) {
  NSString* name = [NSString stringWithUTF8String:entry.name.c_str()];
  NSError* error = nil;
  const std::vector<std::string> names = FunctionNames(library);
  if (std::find(names.begin(), names.end(), entry.name) == names.end()) {
    if (!kShadersHaveBfloat && entry.name.find("_bfloat") != std::string::npos) {
      return Unimplemented(NoBfloat(StrCat("the shader '", entry.name, "'")));
    }
    const std::string near = NearNames(entry.name, names);
    return NotFound("the shader library ", entry.library->path, " has no function '", entry.name,
                    "'", near.empty() ? "" : "; near it are " + near,
                    ". Correct the name, or rebuild the library with 'make build'");
  }
  if (entry.constants.empty()) {
    *function = [library newFunctionWithName:name];
  } else {
    MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
    for (const Shader::Value& value : entry.constants) {
      [values setConstantValue:&value.bits
                          type:value.type
                       atIndex:static_cast<NSUInteger>(value.index)];
    }
    *function = [library newFunctionWithName:name constantValues:values error:&error];
  }
  if (*function != nil) return Status();
  return Internal("cannot make the shader '", entry.name,
                  "': ", error == nil ? "no reason given" : Text(error));
}

Binding ToBinding(id<MTLBinding> binding) {
  Binding result = {};
  result.name = [[binding name] UTF8String];
  result.index = [binding index];
  result.is_buffer = [binding type] == MTLBindingTypeBuffer;
  result.is_threadgroup = [binding type] == MTLBindingTypeThreadgroupMemory;
  result.is_written = [binding access] != MTLBindingAccessReadOnly;
  if (result.is_buffer) {
    result.pointee = [(id<MTLBufferBinding>)binding bufferDataSize];
    result.type = [(id<MTLBufferBinding>)binding bufferDataType];
    result.layout = DescribeLayout((id<MTLBufferBinding>)binding);
    result.is_scalar = *ScalarName(result.type) != '\0';
  }
  return result;
}

Status Make(Entry* entry) {
  id<MTLLibrary> library = nil;
  RETURN_IF_ERROR(Opened(entry->library, entry->device, &library));
  id<MTLFunction> function = nil;
  RETURN_IF_ERROR(NewFunction(library, *entry, &function));
  NSError* error = nil;
  MTLComputePipelineReflection* reflection = nil;
  Pipeline& made = entry->pipeline;
  made.state = [entry->device newComputePipelineStateWithFunction:function
                                                          options:MTLPipelineOptionBindingInfo |
                                                                  MTLPipelineOptionBufferTypeInfo
                                                       reflection:&reflection
                                                            error:&error];
  [function release];
  if (made.state == nil) {
    return Internal("cannot build a compute pipeline for the shader '", entry->name,
                    "': ", Text(error));
  }
  made.device = entry->device;
  made.name = entry->name;
  for (id<MTLBinding> binding in [reflection bindings]) {
    made.bindings.push_back(ToBinding(binding));
  }
  std::sort(made.bindings.begin(), made.bindings.end(),
            [](const Binding& a, const Binding& b) { return a.index < b.index; });
  made.simd_width = [made.state threadExecutionWidth];
  made.max_threads = [made.state maxTotalThreadsPerThreadgroup];
  made.max_sides = [entry->device maxThreadsPerThreadgroup];
  made.shares =
      made.max_threads < made.max_sides.width || [made.state staticThreadgroupMemoryLength] > 0;
  for (const Binding& binding : made.bindings) made.shares |= binding.is_threadgroup;
  return Status();
}

// The fewest letters to insert, drop or change that make b of a; neighbours may swap.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), two_before;
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    two_before = before;
    before = row;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], two_before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

void Shader::Append(std::string_view text) {
  if (size_ + text.size() > kMaxName) {
    fits_ = false;
    text = text.substr(0, kMaxName - size_);
  }
  for (const char letter : text) {
    text_[size_++] = letter;
    Mix(static_cast<unsigned char>(letter));
  }
}

Shader& Shader::Constant(int index, float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return Constant(index, MTLDataTypeFloat, bits);
}

Shader& Shader::Constant(int index, MTLDataType type, uint32_t bits) {
  if (n_constants_ == kMaxConstants) {
    fits_ = false;
    return *this;
  }
  constants_[n_constants_++] = {index, type, bits};
  Mix(static_cast<uint64_t>(index) << 32 ^ bits);
  return *this;
}

const char* ScalarName(MTLDataType type) {
  switch (type) {
    case MTLDataTypeFloat:
      return "float";
    case MTLDataTypeHalf:
      return "half";
#if METAL_OPS_BFLOAT  // of macOS 14, as the type is
    case MTLDataTypeBFloat:
      return "bfloat";
#endif
    case MTLDataTypeInt:
      return "int";
    case MTLDataTypeUInt:
      return "uint";
    case MTLDataTypeShort:
      return "short";
    case MTLDataTypeUShort:
      return "ushort";
    case MTLDataTypeChar:
      return "char";
    case MTLDataTypeUChar:
      return "uchar";
    case MTLDataTypeLong:
      return "long";
    case MTLDataTypeULong:
      return "ulong";
    case MTLDataTypeBool:
      return "bool";
    default:
      return "";
  }
}

namespace {

const ShaderLibrary* Remember(const std::string& path, std::string content, bool is_text,
                              bool fast_math) {
  static std::mutex mutex;
  static auto* const libraries = new std::vector<std::unique_ptr<ShaderLibrary>>();
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& known : *libraries) {
    if (known->is_text == is_text && known->fast_math == fast_math && known->content == content) {
      return known.get();
    }
  }
  libraries->push_back(std::make_unique<ShaderLibrary>());
  ShaderLibrary& made = *libraries->back();
  made.path = path;
  made.content = std::move(content);
  made.is_text = is_text;
  made.fast_math = fast_math;
  return &made;
}

}  // namespace

Status OpenLibrary(const std::string& path, const ShaderLibrary** library) {
  std::ifstream file(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || content.empty()) {
    return NotFound("the shader library ", path,
                    " cannot be read; build it with 'make build', or "
                    "with 'python -m metal_ops build --shaders ...'");
  }
  *library = Remember(path, std::move(content), /*is_text=*/false, /*fast_math=*/false);
  return Status();
}

Status OpenCode(std::string code, bool fast_math, const ShaderLibrary** library) {
  // ELF is hostmetal's, the other one Apple's.
  const bool compiled = code.compare(0, 4,
                                     "\x7f"
                                     "ELF") == 0 ||
                        code.compare(0, 4, "MTLB") == 0;
  if (!compiled && code.find('\0') != std::string::npos) {
    return InvalidArgument("the text of a shader holds a zero byte");
  }
  *library = Remember(compiled ? "(given as bytes)" : "(compiled from its text)", std::move(code),
                      !compiled, !compiled && fast_math);
  return Status();
}

Status ShaderNames(id<MTLDevice> device, const ShaderLibrary* library,
                   std::vector<std::string>* names) {
  id<MTLLibrary> opened = nil;
  RETURN_IF_ERROR(Opened(library, device, &opened));
  *names = FunctionNames(opened);
  std::sort(names->begin(), names->end());
  return Status();
}

Status GetPipeline(id<MTLDevice> device, const Shader& shader, const Pipeline** pipeline) {
  const ShaderLibrary* library = shader.library();
  if (library == nullptr) RETURN_IF_ERROR(DefaultLibrary(&library));
  if (!shader.fits()) {
    return Internal("the shader '", shader.name(), "' has a name of more than ", Shader::kMaxName,
                    " letters, or more than ", Shader::kMaxConstants, " function constants");
  }
  Cache& cache = GetCache();
  Entry* entry = nullptr;
  {
    const std::shared_lock<std::shared_mutex> lock(cache.mutex);
    entry = cache.Find(device, library, shader);
  }
  if (entry == nullptr) {
    const std::unique_lock<std::shared_mutex> lock(cache.mutex);
    entry = cache.Find(device, library, shader);
    if (entry == nullptr) {
      const auto it =
          cache.entries.emplace(shader.hash(), std::make_unique<Entry>(device, library, shader));
      entry = it->second.get();
    }
  }
  if (!entry->made.load(std::memory_order_acquire)) {
    // Only callers that need this pipeline wait; all others go on.
    const std::lock_guard<std::mutex> lock(entry->making);
    if (!entry->made.load(std::memory_order_relaxed)) {
      RETURN_IF_ERROR(Make(entry));
      entry->made.store(true, std::memory_order_release);
      ++cache.built;
    }
  }
  *pipeline = &entry->pipeline;
  return Status();
}

int64_t PipelinesBuilt() { return GetCache().built; }

namespace {

struct Launches {
  std::mutex mutex;
  std::set<std::string> places, shaders;
};

Launches& GetLaunches() {
  static Launches* launches = new Launches();
  return *launches;
}

// Stays valid until the next call on this thread.
const char* Lines(const std::set<std::string>& words) {
  thread_local std::string text;
  text.clear();
  for (const std::string& word : words) text += word + "\n";
  return text.c_str();
}

}  // namespace

void Visit(const Pipeline& pipeline, const char* file, int line) {
  Launches& launches = GetLaunches();
  const std::lock_guard<std::mutex> lock(launches.mutex);
  launches.places.insert(StrCat(file, ':', line));
  launches.shaders.insert(pipeline.name);
  pipeline.last_line.store(line, std::memory_order_relaxed);
}

std::string NearNames(const std::string& name, const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& other : names) {
    const size_t distance = EditDistance(name, other);
    if (3 * distance <= std::max(name.size(), size_t{3})) near.emplace_back(distance, other);
  }
  std::sort(near.begin(), near.end());
  std::string text;
  for (size_t i = 0; i < std::min(near.size(), kShown); ++i) {
    text += (i > 0 ? ", '" : "'") + near[i].second + "'";
  }
  return text;
}

}  // namespace metal_ops

// For tests: a kernel that runs again must not build its pipelines again.
extern "C" __attribute__((visibility("default"))) int64_t metal_kernels_pipelines_built() {
  return metal_ops::PipelinesBuilt();
}

// For the test that visits every launch: "kernels/null_op/null_op_metal.mm:38", a line each.
extern "C" __attribute__((visibility("default"))) const char* metal_kernels_launches() {
  metal_ops::Launches& launches = metal_ops::GetLaunches();
  const std::lock_guard<std::mutex> lock(launches.mutex);
  return metal_ops::Lines(launches.places);
}

// And the shaders of this library that nothing has launched.
extern "C" __attribute__((visibility("default"))) const char* metal_kernels_idle_shaders() {
  const metal_ops::ShaderLibrary* library = nullptr;
  if (!metal_ops::DefaultLibrary(&library).ok()) return "";
  std::set<std::string> idle;
  @autoreleasepool {
    for (const auto& [device, opened] : library->opened) {
      for (const std::string& name : metal_ops::FunctionNames(opened)) idle.insert(name);
    }
  }
  metal_ops::Launches& launches = metal_ops::GetLaunches();
  const std::lock_guard<std::mutex> lock(launches.mutex);
  for (const std::string& name : launches.shaders) idle.erase(name);
  return metal_ops::Lines(idle);
}
