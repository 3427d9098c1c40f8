// The shaders that textures.mm launches on a GPU and on the CPU.
#include <metal_stdlib>
using namespace metal;

#define POINTS                                                             \
  device const float4 *at [[buffer(0)]], device float4 *out [[buffer(1)]], \
      uint i [[thread_position_in_grid]]

kernel void copied(texture2d<float, access::read> from [[texture(0)]],
                   texture2d<float, access::write> to [[texture(1)]],
                   uint2 i [[thread_position_in_grid]]) {
  to.write(from.read(i), i);
}
kernel void counted(texture2d<uint, access::read> from [[texture(0)]],
                    texture2d<uint, access::write> to [[texture(1)]],
                    uint2 i [[thread_position_in_grid]]) {
  to.write(from.read(i) * 3 + 1, i);
}
kernel void sampled_2d(texture2d<float> t [[texture(0)]], sampler s [[sampler(0)]], POINTS) {
  out[i] = t.sample(s, at[i].xy, level(at[i].w));
}
kernel void gathered_2d(texture2d<float> t [[texture(0)]], sampler s [[sampler(0)]], POINTS) {
  out[i] = t.gather(s, at[i].xy);
}
kernel void sampled_array(texture2d_array<float> t [[texture(0)]], sampler s [[sampler(0)]],
                          POINTS) {
  out[i] = t.sample(s, at[i].xy, uint(fabs(at[i].z) * 3.0f), level(at[i].w));
}
kernel void sampled_3d(texture3d<float> t [[texture(0)]], sampler s [[sampler(0)]], POINTS) {
  out[i] = t.sample(s, at[i].xyz, level(at[i].w));
}
kernel void sampled_cube(texturecube<float> t [[texture(0)]], sampler s [[sampler(0)]], POINTS) {
  out[i] = t.sample(s, at[i].xyz, level(at[i].w));
}
kernel void compared(depth2d<float> t [[texture(0)]], sampler s [[sampler(0)]], POINTS) {
  out[i] = t.sample_compare(s, at[i].xy, at[i].z);
}
