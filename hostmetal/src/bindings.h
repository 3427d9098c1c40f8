// The bindings of a compute encoder, and whether a kernel can run on them.
#ifndef HOSTMETAL_SRC_BINDINGS_H_
#define HOSTMETAL_SRC_BINDINGS_H_

#include <algorithm>
#include <memory>
#include <string>

#include "hostmetal/src/buffer.h"
#include "hostmetal/src/command_list.h"
#include "hostmetal/src/pipeline.h"
#include "hostmetal/src/texture.h"

namespace hostmetal {

struct Bindings {
  // Nil where setBytes: was used; for setBufferOffset:.
  HMBuffer* buffers[METALLIB_MAX_BUFFERS] = {};
  uint32_t threadgroup_lengths[METALLIB_MAX_BUFFERS] = {};
  uint32_t without_memory = 0;  // bit i: threadgroup_lengths[i] is 0 because the host said so
  uint32_t host_bytes = 0;      // as in DispatchCommand
  uint32_t tables = 0;          // bit i: buffers[i] is a table of functions
  metallib_buffer table[METALLIB_FIRST_TEXTURE] = {};

  // The parts of metallib_launch after the buffers. Most of it all, and mostly not needed.
  struct Textures {
    metallib_buffer table[METALLIB_MAX_BINDINGS - METALLIB_FIRST_TEXTURE] = {};
    HMTexture* objects[METALLIB_MAX_TEXTURES] = {};
  };
  std::unique_ptr<Textures> textures;

  Textures& WithTextures() {
    if (!textures) textures = std::make_unique<Textures>();
    return *textures;
  }
  // By a slot of metallib_launch's table; of a texture or sampler after WithTextures().
  metallib_buffer& At(size_t slot) {
    return slot < METALLIB_FIRST_TEXTURE ? table[slot]
                                         : textures->table[slot - METALLIB_FIRST_TEXTURE];
  }
  // All of another's, and nothing else.
  void SetBuffers(const Bindings& other) {
    std::copy_n(other.buffers, METALLIB_MAX_BUFFERS, buffers);
    std::copy_n(other.table, METALLIB_FIRST_TEXTURE, table);
    host_bytes = other.host_bytes;
    tables = other.tables;
  }
  const metallib_buffer& At(size_t slot) const { return const_cast<Bindings*>(this)->At(slot); }
};

// Why the pipeline's kernel cannot run on the bindings, if it cannot. If it can, `shorter` is as in DispatchCommand, of
// bytes, too.
Failure Unfit(const Bindings& bound, const HMComputePipelineState* pipeline, uint32_t* shorter);
// Why it cannot run in threadgroups of that size.
Failure UnfitGroup(MTLSize group, const HMComputePipelineState* pipeline);
// Fills in all but the grid. The bindings' copy is the arena's.
void Bind(const Bindings& bound, const HMComputePipelineState* pipeline, MTLSize group,
          uint32_t shorter, Arena* arena, DispatchCommand* command);
// The grid, in threadgroups or in threads; an error where it has too many.
Failure SetGrid(MTLSize grid, bool groups, DispatchCommand* command);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_BINDINGS_H_
