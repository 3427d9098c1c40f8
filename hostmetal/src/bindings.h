// What a compute encoder has bound, and whether a kernel can run on it.
#ifndef HOSTMETAL_SRC_BINDINGS_H_
#define HOSTMETAL_SRC_BINDINGS_H_

#include <algorithm>
#include <iterator>
#include <string>

#include "hostmetal/src/buffer.h"
#include "hostmetal/src/pipeline.h"
#include "hostmetal/src/texture.h"

namespace hostmetal {

struct Bindings {
  // Nil where setBytes: was used; for setBufferOffset:.
  HMBuffer* buffers[METALLIB_MAX_BUFFERS] = {};
  uint32_t threadgroup_lengths[METALLIB_MAX_BUFFERS] = {};
  uint32_t host_bytes = 0;  // as in DispatchCommand
  bool has_textures = false;
  // As in metallib_launch. What is behind the buffers is cleared when it is first needed: it is
  // most of this struct.
  metallib_buffer table[METALLIB_MAX_BINDINGS];
  HMTexture* textures[METALLIB_MAX_TEXTURES];

  Bindings() { std::fill_n(table, METALLIB_FIRST_TEXTURE, metallib_buffer()); }
  void ClearTextures() {
    if (has_textures) return;
    std::fill(table + METALLIB_FIRST_TEXTURE, std::end(table), metallib_buffer());
    std::fill(std::begin(textures), std::end(textures), nullptr);
    has_textures = true;
  }
};

// Why the pipeline's kernel cannot run on what is bound, if it cannot.
Failure Unfit(const Bindings& bound, const HMComputePipelineState* pipeline);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_BINDINGS_H_
