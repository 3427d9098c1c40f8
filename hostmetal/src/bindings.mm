// Whether a kernel can run on the bindings, and the stream's arguments for it.
#include "hostmetal/src/bindings.h"

#include <string.h>

#include <algorithm>

namespace hostmetal {
namespace {

std::string Number(uint64_t n) { return std::to_string(n); }

// The error of binding this texture to that argument; "" if there is none.
std::string Mismatch(const metallib_argument& a, HMTexture* texture, bool validate) {
  std::string expected = std::string("is declared as ") + a.type_name;
  if (TextureType(a.type_name) != texture->_textureType) {
    return expected + ", but the texture has MTLTextureType " + Number(texture->_textureType);
  }
  // Components may be wider than the stored ones, but not of another sort.
  std::string component = TextureComponent(a.type_name);
  uint32_t stored = texture->_layout.component;
  bool is_unsigned =
      stored == METALLIB_UINT8 || stored == METALLIB_UINT16 || stored == METALLIB_UINT32;
  bool is_signed =
      stored == METALLIB_SINT8 || stored == METALLIB_SINT16 || stored == METALLIB_SINT32;
  const char* sort = is_unsigned ? "unsigned integers" : is_signed ? "signed integers" : "floats";
  if ((component == "uint" || component == "ushort") != is_unsigned ||
      (component == "int" || component == "short") != is_signed) {
    return expected + ", but MTLPixelFormat " + Number(texture->_pixelFormat) + " holds " + sort;
  }
  bool writes = a.flags & METALLIB_ARG_WRITTEN;
  bool reads = std::string(a.type_name).find("access::write>") == std::string::npos;
  MTLTextureUsage needed =
      (reads ? MTLTextureUsageShaderRead : 0) | (writes ? MTLTextureUsageShaderWrite : 0);
  if (validate && texture->_usage != MTLTextureUsageUnknown &&
      (texture->_usage & needed) != needed) {
    return expected + ", but the texture's usage is " + Number(texture->_usage) +
           ", without what that needs (MTLTextureUsageShaderRead 1, ShaderWrite 2)";
  }
  return "";
}

}  // namespace

Failure Unfit(const Bindings& bound, const HMComputePipelineState* pipeline, uint32_t* shorter) {
  *shorter = 0;
  const Kernel& kernel = *pipeline->_kernel;
  const metallib_kernel& entry = *kernel.entry;
  const bool validate = pipeline->_device->_validate;
  // Words are put together where something is wrong: a launch is encoded in less time than they
  // take.
  uint64_t threadgroup_bytes = entry.static_threadgroup_bytes;
  for (uint32_t i = 0; i < entry.n_arguments; ++i) {
    const metallib_argument& a = entry.arguments[i];
    if (a.flags & METALLIB_ARG_OPTIONAL) {
      bool enabled = a.enabled_by >= 0 && kernel.constants[size_t(a.enabled_by)].defined &&
                     kernel.constants[size_t(a.enabled_by)].bytes[0];
      if (!enabled) continue;
    }
    if (a.kind == METALLIB_THREADGROUP) {
      uint32_t length = bound.threadgroup_lengths[a.index];
      threadgroup_bytes += length;
      // On a GPU a kernel runs that does not touch it; here it is a page fault where it does.
      if (length || !validate || bound.without_memory >> a.index & 1) continue;
      return {kInvalidResource, "threadgroup(" + Number(a.index) + ") '" + a.name +
                                    "' has no length; call setThreadgroupMemoryLength:atIndex:"};
    }
    const metallib_buffer& binding = bound.At(Slot(a));
    if (a.kind == METALLIB_TEXTURE || a.kind == METALLIB_SAMPLER) {
      std::string wrong = binding.address ? "" : "is not bound";
      if (wrong.empty() && a.kind == METALLIB_TEXTURE) {
        wrong = Mismatch(a, bound.textures->objects[a.index], validate);
      }
      if (wrong.empty()) continue;
      return {kInvalidResource, (a.kind == METALLIB_TEXTURE ? "texture(" : "sampler(") +
                                    Number(a.index) + ") '" + a.name + "' " + wrong};
    }
    const auto name = [&] { return "buffer(" + Number(a.index) + ") '" + a.name + "' "; };
    if (a.kind == METALLIB_TENSOR) {
      return {kInvalidResource,
              name() + "is a tensor, which this encoder cannot bind; put its gpuResourceID into an "
                       "argument buffer, a struct with the tensor"};
    }
    if (!binding.address) {
      return {kInvalidResource, name() + "is not bound"};
    }
    const bool table = bound.tables >> a.index & 1;
    if (table != (a.kind == METALLIB_TABLE)) {
      return {kInvalidResource,
              name() + (table ? "is no table of functions, but one is bound"
                              : "is a table of functions, and a buffer is bound")};
    }
    if ((a.flags & METALLIB_ARG_REFERENCE) && binding.length < a.pointee_size) {
      // On a GPU that reads the bytes behind, and only validation objects: hosts give a float3 of 12 bytes.
      if (!validate) {
        *shorter |= 1u << a.index;
        continue;
      }
      return {kInvalidResource, name() + "has " + Number(binding.length) + " bytes; " +
                                    a.type_name + " takes " + Number(a.pointee_size)};
    }
    if (validate && (a.flags & METALLIB_ARG_WRITTEN) && !bound.buffers[a.index]) {
      return {kInvalidResource,
              name() + "is bound by setBytes, which is read-only, but the kernel may write it"};
    }
    if (validate && a.pointee_alignment &&
        reinterpret_cast<uintptr_t>(binding.address) % a.pointee_alignment) {
      return {kInvalidResource, name() + "is bound at an offset that is not a multiple of " +
                                    Number(a.pointee_alignment)};
    }
  }
  const uint32_t most = pipeline->_device->_driver->info().threadgroup_bytes;
  if (threadgroup_bytes > most) {
    return {kInternal, Number(threadgroup_bytes) + " bytes of threadgroup memory; the limit is " +
                           Number(most)};
  }
  return {};
}

Failure UnfitGroup(MTLSize group, const HMComputePipelineState* pipeline) {
  const NSUInteger limit = METALLIB_MAX_THREADS;
  const NSUInteger threads = group.width > limit || group.height > limit || group.depth > limit
                                 ? NSUIntegerMax
                                 : group.width * group.height * group.depth;
  if (threads == 0 || threads > pipeline->_kernel->max_threads) {
    return {kInternal, "a threadgroup of " + Number(group.width) + " x " + Number(group.height) +
                           " x " + Number(group.depth) + " threads; 1 to " +
                           Number(pipeline->_kernel->max_threads) +
                           " are allowed (maxTotalThreadsPerThreadgroup)"};
  }
  if (pipeline->_multipleOfWidth && pipeline->_device->_validate && threads % METALLIB_SIMD_WIDTH) {
    return {kInternal, "a threadgroup of " + Number(threads) +
                           " threads, but the pipeline was promised multiples of " +
                           Number(METALLIB_SIMD_WIDTH)};
  }
  return {};
}

void Bind(const Bindings& bound, const HMComputePipelineState* pipeline, MTLSize group,
          uint32_t shorter, Arena* arena, DispatchCommand* command) {
  // One copy of both tables, as short as the kernel allows.
  const size_t count = pipeline->_bindingCount;
  auto* bindings = static_cast<metallib_buffer*>(
      arena->Allocate(count * sizeof(metallib_buffer) + sizeof bound.threadgroup_lengths));
  constexpr size_t kBuffers = METALLIB_FIRST_TEXTURE;
  std::copy_n(bound.table, std::min(count, kBuffers), bindings);
  if (count > kBuffers) {
    std::copy_n(bound.textures->table, count - kBuffers, bindings + kBuffers);
  }
  for (uint32_t bits = shorter & bound.host_bytes; bits; bits &= bits - 1) {
    metallib_buffer& bytes = bindings[__builtin_ctz(bits)];
    const size_t whole =
        ReferenceAt(*pipeline->_kernel->entry, uint32_t(__builtin_ctz(bits)))->pointee_size;
    auto* longer = static_cast<char*>(arena->Allocate(whole));
    memcpy(longer, bytes.address, bytes.length);
    memset(longer + bytes.length, 0, whole - bytes.length);
    bytes = {longer, whole};
  }
  auto* lengths = reinterpret_cast<uint32_t*>(bindings + count);
  std::copy_n(bound.threadgroup_lengths, METALLIB_MAX_BUFFERS, lengths);
  command->kernel = pipeline->_kernel;
  command->buffers = bindings;
  command->threadgroup_lengths = lengths;
  command->host_bytes = bound.host_bytes;
  command->shorter = shorter & ~bound.host_bytes;
  command->threadgroup_size[0] = uint32_t(group.width);
  command->threadgroup_size[1] = uint32_t(group.height);
  command->threadgroup_size[2] = uint32_t(group.depth);
}

Failure SetGrid(MTLSize grid, bool groups, DispatchCommand* command) {
  const NSUInteger size[3] = {grid.width, grid.height, grid.depth};
  for (int i = 0; i < 3; ++i) {
    const uint64_t per_group = command->threadgroup_size[i];
    uint64_t threads = size[i];
    if (groups && __builtin_mul_overflow(threads, per_group, &threads)) threads = UINT64_MAX;
    if (threads > UINT32_MAX) {
      return {kInternal,
              Number(threads) + " threads in one dimension; the limit is " + Number(UINT32_MAX)};
    }
    command->threads[i] = uint32_t(threads);
    command->threadgroups[i] = uint32_t((threads + per_group - 1) / per_group);
  }
  return {};
}

}  // namespace hostmetal
