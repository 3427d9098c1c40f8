// Part of library.cc, with -g: what one calls in a debugger.

extern "C" int snprintf(char*, unsigned long, const char*, ...);

// The thread and kernel at this place: (gdb) print metal_thread()
extern "C" __attribute__((visibility("default"), used)) const char* metal_thread() {
  static __thread char text[256];
  const metallib_launch* l = tls_log.launch;
  if (!l) return "no kernel runs on this thread of the processor";
  const Position p = place_of_thread();
  const unsigned* g = p.threadgroup_position;
  unsigned at[3];
  for (int i = 0; i < 3; ++i) at[i] = g[i] * l->threadgroup_size[i] + p.local[i];
  snprintf(text, sizeof text,
           "%s: thread (%u, %u, %u) of the grid, (%u, %u, %u) of threadgroup (%u, %u, %u), lane %u "
           "of simdgroup %u",
           tls_log.kernel, at[0], at[1], at[2], p.local[0], p.local[1], p.local[2], g[0], g[1],
           g[2], p.index % kLanes, p.index / kLanes);
  return text;
}
