// The counterpart of sync.h on a GPU: lanes are the processor's own, and a barrier is an
// instruction.
#pragma once

#include "../metallib_abi.h"

namespace _msl {

struct Position {
  unsigned threadgroup_position[3], local[3],
      size[3];     // size: of this threadgroup, clipped at the grid's edge
  unsigned index;  // thread_index_in_threadgroup
};

// Lanes of the warp that are here together.
inline unsigned active_lanes() { return __nvvm_activemask(); }
inline void simd_barrier(unsigned long) { __nvvm_bar_warp_sync(active_lanes()); }

}  // namespace _msl

inline unsigned _msl_lane() { return __nvvm_read_ptx_sreg_laneid(); }
// Threads that have returned do not count: those beyond the grid's edge, first of all.
inline void _msl_barrier() { __nvvm_bar_sync(0); }
constexpr bool _msl_checked = false;
#define MSL_HIDDEN extern "C" inline
