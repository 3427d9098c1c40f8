// Part of library.cc: writes messages of os_log into the launch's log buffer.

namespace {
struct LogPlace {
  const metallib_launch* launch;
  const char* kernel;
  const Position* at;  // of kernels that run as loops
};
__thread LogPlace tls_log;

void copy_bytes(void* to, const void* from, unsigned long n) { __builtin_memcpy(to, from, n); }

// Where a record of so many bytes goes; nullptr where there is no room.
metallib_log_record* take_log(metallib_log* log, unsigned size) {
  unsigned long used = __atomic_load_n(&log->used, __ATOMIC_RELAXED);
  do {
    if (used + size > log->capacity) {
      __atomic_fetch_add(&log->dropped, 1, __ATOMIC_RELAXED);
      return nullptr;
    }
  } while (!__atomic_compare_exchange_n(&log->used, &used, used + size, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
  auto* record = reinterpret_cast<metallib_log_record*>(reinterpret_cast<char*>(log + 1) + used);
  __atomic_store_n(&record->size, size | 1, __ATOMIC_RELEASE);
  return record;
}

// The position of the thread that runs here, in a kernel that notes it.
Position place_of_thread() {
  if (Group* g = tls_group) {
    Position here = g->position;
    here.index = g->current;
    here.local[0] = here.index % here.size[0];
    here.local[1] = here.index / here.size[0] % here.size[1];
    here.local[2] = here.index / (here.size[0] * here.size[1]);
    return here;
  }
  return tls_log.at ? *tls_log.at : Position{};
}
}  // namespace

MSL_HIDDEN void _msl_log_in(const metallib_launch* launch, const char* kernel) {
  tls_log = {launch, kernel, nullptr};
}

MSL_HIDDEN void _msl_log_at(const Position* position) { tls_log.at = position; }

MSL_HIDDEN void _msl_log(unsigned level, const char* subsystem, const char* category,
                         const char* format, const void* arguments, unsigned bytes,
                         unsigned count) {
  const metallib_launch* l = tls_log.launch;
  // A runtime from before there were logs has a shorter launch.
  metallib_log* log = l && l->size >= sizeof *l ? l->log : nullptr;
  if (!log || level < log->level) return;
  metallib_log_record* record = take_log(log, unsigned(sizeof *record) + bytes);
  if (!record) return;
  record->level = static_cast<unsigned short>(level);
  record->flags = 0;
  record->subsystem = subsystem;
  record->category = category;
  record->format = format;
  record->kernel = tls_log.kernel;
  record->n_arguments = count;
  copy_bytes(record + 1, arguments, bytes);
  const Position here = place_of_thread();
  for (int i = 0; i < 3; ++i) {
    record->thread[i] = here.threadgroup_position[i] * l->threadgroup_size[i] + here.local[i];
  }
  __atomic_store_n(&record->size, unsigned(sizeof *record) + bytes, __ATOMIC_RELEASE);
}
