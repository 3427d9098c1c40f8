/* The contract between a compiled shader library (a Linux .metallib, an ELF shared object) and the
 * runtime. The compiler (python/metal_ops/metal/abi.py) reads numbers and structs out of this file.
 *
 * Plain C, no dependencies. A .metallib exports data symbols, found with dlsym(RTLD_LOCAL
 * handle), each a `const metallib_library`:
 *
 *   metallib_v1          the kernels as they run normally
 *   metallib_v1_checked  the same kernels with every device, constant and threadgroup access bounds
 *                        checked; for METAL_DEVICE_WRAPPER_TYPE=1. Absent when compiled with
 *                        -fno-shader-validation.
 *   metallib_v1_wide     of some kernels, code for wider vectors than every processor that runs
 *                        metallib_v1 has, where a shader asks for it: absent where none does
 *
 *   metallib_v1_deferred is a text, with a zero behind it: what the compiler makes the code of
 *                        METALLIB_KERNEL_ABSENT kernels of (python/metal_ops/metal/deferred.py)
 *
 * A .metallib needs libc and libm only; fibers come from the runtime (metallib_host).
 *
 * The runtime's steps for one dispatch:
 *   1. finds the kernel by name, once; checks `supported()` once a library;
 *   2. checks what it wants to check (all of it is optional for the compiled side, which trusts the
 * launch): every argument without METALLIB_ARG_OPTIONAL is bound, threadgroup size <=
 * max_total_threads, lengths;
 *   3. fills a metallib_launch and splits [0, tx*ty*tz) threadgroups over its workers in any way;
 *   4. every worker has a scratch block of at least kernel->scratch_size(launch) bytes, 64-byte
 * aligned, that nothing else uses meanwhile (contents do not have to be kept or cleared; most of it is
 * stack that stays untouched, so mmap or a cached block is best), and calls kernel->run(launch,
 * first, count, scratch);
 *   5. after the last worker: looks at fault->state.
 * `run` is reentrant and thread-safe, never throws, never allocates, and returns when the
 * threadgroups are done.
 */
#ifndef HOSTMETAL_MSL_METALLIB_ABI_H_
#define HOSTMETAL_MSL_METALLIB_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define METALLIB_ABI_VERSION 2u
#define METALLIB_MAGIC 0x314c534du /* "MSL1" */
#define METALLIB_SYMBOL "metallib_v1"
#define METALLIB_CHECKED_SYMBOL "metallib_v1_checked"
#define METALLIB_WIDE_SYMBOL "metallib_v1_wide"
#define METALLIB_DEFERRED_SYMBOL "metallib_v1_deferred"
#define METALLIB_TRAILER_MAGIC "MSL1CRC" /* with its '\0' */

/* The last bytes of the file, behind what ELF knows of: the file is whole, and a .metallib. A
 * loader checks that first, as a damaged library crashes the loader. Such a library has no
 * constructors and needs libc and libm alone, so that loading it runs nothing. It is native code
 * none the less: load only what you would run. */
typedef struct metallib_trailer {
  char magic[8];
  uint32_t crc32; /* of all bytes before the trailer, as zlib's crc32() */
  uint32_t reserved;
} metallib_trailer;

enum {
  METALLIB_SIMD_WIDTH = 32,                /* threadExecutionWidth of every kernel */
  METALLIB_MAX_THREADS = 1024,             /* threads in a threadgroup, at most */
  METALLIB_MAX_BUFFERS = 31,               /* [[buffer(0..30)]] and [[threadgroup(0..30)]] */
  METALLIB_MAX_THREADGROUP_MEMORY = 32768, /* bytes, static and passed together */
  METALLIB_MAX_TEXTURES = 128,             /* [[texture(0..127)]] */
  METALLIB_MAX_SAMPLERS = 16,              /* [[sampler(0..15)]] */
  /* Where they lie in metallib_launch.buffers, behind the buffers. */
  METALLIB_FIRST_TEXTURE = METALLIB_MAX_BUFFERS,
  METALLIB_FIRST_SAMPLER = METALLIB_FIRST_TEXTURE + METALLIB_MAX_TEXTURES,
  METALLIB_MAX_BINDINGS = METALLIB_FIRST_SAMPLER + METALLIB_MAX_SAMPLERS,
  METALLIB_MAX_LEVELS = 16, /* mipmap levels of a texture */
  METALLIB_MAX_TENSOR_RANK = 16,
};

/* ---- reflection
 * ---------------------------------------------------------------------------------------------- */

enum metallib_argument_kind {
  METALLIB_DEVICE = 0,      /* device T* or device T&: a buffer */
  METALLIB_CONSTANT = 1,    /* constant T* or constant T&: a buffer or setBytes */
  METALLIB_THREADGROUP = 2, /* threadgroup T* parameter: setThreadgroupMemoryLength:atIndex: */
  METALLIB_TEXTURE = 3,     /* a texture by value: setTexture:atIndex: */
  METALLIB_SAMPLER = 4,     /* sampler by value: setSamplerState:atIndex: */
  METALLIB_TABLE = 5,       /* visible_function_table by value, among the buffers: addresses of
                               functions, 0 for none */
  METALLIB_TENSOR = 6,      /* a tensor_handle by value, among the buffers: its metallib_tensor */
};

enum metallib_argument_flags {
  METALLIB_ARG_WRITTEN = 1u << 0, /* pointee is not const: the kernel may write */
  METALLIB_ARG_REFERENCE =
      1u << 1, /* T&: exactly one object, so the binding must hold pointee_size bytes */
  METALLIB_ARG_OPTIONAL =
      1u << 2, /* has [[function_constant(c)]]: needed only where constant `enabled_by` is true */
  METALLIB_ARG_MEMBERS = 1u << 3,  /* points to a struct, matrix, array or enum: behind the '\0' of
                                     `name` stands its layout, as
                                     python/metal_ops/metal/members.py writes it */
  METALLIB_ARG_UNUSED = 1u << 4,   /* the kernel's body does not name it */
  METALLIB_ARG_RESTRICT = 1u << 5, /* declared restrict: what it leads to has no other name */
};

typedef struct metallib_argument {
  const char* name;      /* parameter name, "" if unnamed */
  const char* type_name; /* MSL name of the pointee: "float4", "HashParams"; of a texture:
                            "texture2d<float, access::read>" */
  uint32_t kind;         /* metallib_argument_kind */
  uint32_t index; /* index among the arguments of its kind; both kinds of buffers count as one */
  uint32_t flags; /* metallib_argument_flags; WRITTEN for a texture that can be written */
  uint32_t pointee_size;      /* sizeof(T); 0 for textures and samplers */
  uint32_t pointee_alignment; /* alignof(T); 0 for textures and samplers */
  /* Position in metallib_kernel.constants of the bool that enables an optional argument; -1 without
   * METALLIB_ARG_OPTIONAL, or where the condition is computed from several constants. */
  int32_t enabled_by;
} metallib_argument;

/* The types of a function constant: MTLDataType's numbers. Vectors of 2, 3 and 4 follow each. */
enum metallib_data_type {
  METALLIB_TYPE_FLOAT = 3,
  METALLIB_TYPE_HALF = 16,
  METALLIB_TYPE_INT = 29,
  METALLIB_TYPE_UINT = 33,
  METALLIB_TYPE_SHORT = 37,
  METALLIB_TYPE_USHORT = 41,
  METALLIB_TYPE_CHAR = 45,
  METALLIB_TYPE_UCHAR = 49,
  METALLIB_TYPE_BOOL = 53,
  METALLIB_TYPE_LONG = 81,
  METALLIB_TYPE_ULONG = 85,
  METALLIB_TYPE_BFLOAT = 121,
};

enum metallib_function_constant_flags {
  /* The kernel, or a function it calls, reads it and nowhere asks is_function_constant_defined: making
   * the function without a value is an error. */
  METALLIB_CONSTANT_REQUIRED = 1u << 0,
  /* The kernel has no use for it: no function lists it. */
  METALLIB_CONSTANT_UNUSED = 1u << 1,
};

typedef struct metallib_function_constant {
  const char* name;
  uint32_t index;     /* [[function_constant(index)]] */
  uint32_t data_type; /* metallib_data_type, or up to 3 more */
  uint32_t size;      /* bytes, at most 16 */
  uint32_t flags;     /* metallib_function_constant_flags */
} metallib_function_constant;

/* ---- a launch
 * ------------------------------------------------------------------------------------------------
 */

typedef struct metallib_buffer {
  void* address;   /* buffer contents + offset, NULL if nothing is bound */
  uint64_t length; /* bytes from address to the end of the buffer (or setBytes copy) */
} metallib_buffer;

/* ---- textures: what `address` of a texture's or sampler's entry in metallib_launch.buffers points
 * to. Both have to live as long as the launch. */

enum metallib_component { /* how one component of a pixel is stored */
                          METALLIB_UNORM8 = 0,
                          METALLIB_SNORM8 = 1,
                          METALLIB_UINT8 = 2,
                          METALLIB_SINT8 = 3,
                          METALLIB_UNORM16 = 4,
                          METALLIB_SNORM16 = 5,
                          METALLIB_UINT16 = 6,
                          METALLIB_SINT16 = 7,
                          METALLIB_FLOAT16 = 8,
                          METALLIB_UINT32 = 9,
                          METALLIB_SINT32 = 10,
                          METALLIB_FLOAT32 = 11,
};

enum metallib_texture_flags {
  METALLIB_TEXTURE_BGRA = 1u << 0, /* blue comes first */
  METALLIB_TEXTURE_SRGB = 1u << 1, /* all components but alpha are stored by sRGB's curve */
  METALLIB_TEXTURE_ALPHA_ONLY = 1u << 2,
  METALLIB_TEXTURE_SWIZZLED = 1u << 3, /* what is read goes by `swizzle` */
};

/* Pixel (x, y) of slice or plane z of level l lies at
 * address + level[l].offset + z * level[l].image_bytes + y * level[l].row_bytes + x * pixel_bytes.
 */
typedef struct metallib_texture {
  char* address;
  uint32_t component;  /* metallib_component */
  uint32_t components; /* 1, 2 or 4 of them a pixel */
  uint32_t flags;      /* metallib_texture_flags */
  uint32_t pixel_bytes;
  uint32_t width, height, depth; /* of level 0; each is halved from level to level, down to 1 */
  uint32_t array_length;
  uint32_t levels;
  uint32_t swizzle; /* what red, green, blue and alpha are, a byte each from the lowest on:
                       MTLTextureSwizzle: 0, 1, or the pixel's red, green, blue, alpha */
  struct {
    uint64_t offset, row_bytes, image_bytes;
  } level[METALLIB_MAX_LEVELS];
} metallib_texture;

/* Values of MTLSamplerAddressMode, MTLSamplerMinMagFilter, MTLSamplerMipFilter,
 * MTLSamplerBorderColor, MTLCompareFunction. */
typedef struct metallib_sampler {
  uint8_t address[3]; /* s, t, r */
  uint8_t mag_filter, min_filter, mip_filter;
  uint8_t border_color;
  uint8_t pixel_coordinates; /* 1: coordinates count pixels, 0: they are normalized */
  float lod_min, lod_max;
  uint8_t compare; /* MTLCompareFunction: 0 never, 1 less, ... 7 always */
  uint8_t reserved[3];
} metallib_sampler;

/* A tensor of the host: its gpuResourceID, and a tensor_handle, is the address of one. */
typedef struct metallib_tensor {
  void* address;                    /* of the first element */
  uint32_t data_type, rank;         /* MTLTensorDataType; 1 to METALLIB_MAX_TENSOR_RANK */
  int64_t extents[16], strides[16]; /* the innermost dimension first; strides in elements */
} metallib_tensor;

/* One entry for each of kernel->constants, in that order. */
typedef struct metallib_constant_value {
  uint32_t defined; /* 0: not set (is_function_constant_defined is false) */
  uint32_t reserved;
  uint8_t bytes[16]; /* the value, MSL layout */
} metallib_constant_value;

enum metallib_fault_kind {
  METALLIB_FAULT_NONE = 0,
  METALLIB_FAULT_READ = 1,     /* load outside the binding */
  METALLIB_FAULT_WRITE = 2,    /* store or atomic outside the binding */
  METALLIB_FAULT_UNBOUND = 3,  /* access through a binding that was not set */
  METALLIB_FAULT_INTERNAL = 4, /* the compiled code cannot run something; message says what it is */
};

/* Zeroed by the runtime before the launch; the first fault wins. A faulting run() stops (its
 * threadgroup is left unfinished, no access out of range was done) and every other run() of the
 * same launch stops at its next threadgroup. */
typedef struct metallib_fault {
  uint32_t state;          /* 0 none, 1 being written, 2 written (release); read it with acquire */
  uint32_t kind;           /* metallib_fault_kind */
  const char* kernel;      /* host name */
  const char* message;     /* one static sentence, for METALLIB_FAULT_INTERNAL, else NULL */
  uint32_t argument_kind;  /* metallib_argument_kind of the binding; static threadgroup memory has
                              index 0xffff */
  uint32_t index;          /* its buffer or threadgroup index */
  int64_t offset;          /* first byte of the access, relative to the binding (may be negative) */
  uint64_t length;         /* bytes accessed */
  uint64_t binding_length; /* bytes bound */
  uint32_t threadgroup[3]; /* threadgroup_position_in_grid of the faulting thread */
  uint32_t thread[3]; /* thread_position_in_threadgroup; 0xffffffff where the compiled code does not
                         know it */
} metallib_fault;

/* Boost.Context's two primitives, as they are: jump_fcontext and make_fcontext. Only kernels with
 * METALLIB_KERNEL_FIBERS use them; `host` must be set for those. */
typedef struct metallib_transfer {
  void* context;
  void* data;
} metallib_transfer;

typedef struct metallib_host {
  metallib_transfer (*jump)(void* to, void* data);
  void* (*make)(void* stack_top, size_t stack_size, void (*entry)(metallib_transfer));
} metallib_host;

/* ---- logs: what os_log of a library compiled with -fmetal-enable-logging writes. */

enum metallib_log_kind { /* of an argument's numbers */
                         METALLIB_LOG_SIGNED = 0,
                         METALLIB_LOG_UNSIGNED = 1,
                         METALLIB_LOG_FLOAT = 2, /* half, float */
                         METALLIB_LOG_BFLOAT = 3,
                         METALLIB_LOG_POINTER = 4,
};

/* The numbers follow, in bytes padded to a multiple of 8. */
typedef struct metallib_log_argument {
  uint8_t kind;  /* metallib_log_kind */
  uint8_t bytes; /* of one number */
  uint8_t count; /* 1, or 2 to 4 of a vector */
  uint8_t reserved[5];
} metallib_log_argument;

/* A message; its arguments follow. Texts are the library's, which lives as long as the launch. Code
 * for GPUs has none of the host's addresses: with METALLIB_LOG_INLINE in `flags` the texts that are
 * not NULL follow the arguments, in the order of the fields, each with its zero. */
typedef struct metallib_log_record {
  /* Of all of it, a multiple of 8; 0 before it is begun, and with the lowest bit while it is
   * written. Read it with acquire. */
  uint32_t size;
  uint16_t level; /* MTLLogLevel */
  uint16_t flags;
  const char *subsystem, *category; /* NULL of os_log_default */
  const char *format, *kernel;
  uint32_t thread[3]; /* thread_position_in_grid */
  uint32_t n_arguments;
} metallib_log_record;

enum { METALLIB_LOG_INLINE = 1 };

/* A log buffer: so many bytes of records follow. */
typedef struct metallib_log {
  uint64_t capacity; /* bytes behind this struct */
  uint64_t used;     /* taken so far: a record takes its place by compare and exchange */
  uint64_t dropped;  /* messages for which no place was left */
  uint32_t level;    /* MTLLogLevel: messages below it are not written */
  uint32_t reserved;
} metallib_log;

/* ---- checks: kernels compiled with -fshader-checks, for HOSTMETAL_CHECK and HOSTMETAL_SCHEDULE. A
 * launch that has a metallib_checks is run by one call of `run`, for all threadgroups. */

enum metallib_check {
  METALLIB_CHECK_RACE = 1u << 0,
  METALLIB_CHECK_INIT = 1u << 1,
  METALLIB_CHECK_BARRIER = 1u << 2,
  METALLIB_CHECK_BOUNDS = 1u << 3,
  METALLIB_CHECK_ALIAS = 1u << 4,
};

enum metallib_schedule { /* the order of threads, simdgroups and threadgroups */
                         METALLIB_SCHEDULE_PLAIN = 0, /* as kernels run without checks by fibers */
                         METALLIB_SCHEDULE_REVERSE = 1,
                         METALLIB_SCHEDULE_ONE_SIMDGROUP = 2, /* as far as it gets, then the next */
                         METALLIB_SCHEDULE_RANDOM = 3, /* changes at any access, too; by the seed */
};

enum {
  METALLIB_MAX_REPORTS = 8, /* of a launch; further ones are counted */
  METALLIB_REPORT_BYTES = 768,
};

/* Bytes that a program has in a buffer of which it, or a kernel, has not written all: a bit a byte,
 * from the lowest on, set where one was. */
typedef struct metallib_fresh {
  char* address;
  uint64_t length;
  uint8_t* written;
} metallib_fresh;

typedef struct metallib_checks {
  uint32_t checks;   /* metallib_check */
  uint32_t schedule; /* metallib_schedule */
  uint64_t seed;
  /* The launch may overlap those before it that had this shadow, up to one without `overlaps`. */
  uint32_t overlaps;
  uint32_t n_fresh;
  const metallib_fresh* fresh;
  const void* kernel; /* the metallib_kernel that runs */
  /* Memory of zeros at first, page-aligned, which the kernels' code keeps its history in. */
  void* shadow;
  uint64_t shadow_bytes; /* at least 64 MiB */
  uint32_t n_reports;    /* written by the launch */
  uint32_t n_more;
  char report[METALLIB_MAX_REPORTS]
             [METALLIB_REPORT_BYTES]; /* sentences, each with a zero behind it */
} metallib_checks;

/* sizes are {x, y, z}, all at least 1. */
typedef struct metallib_launch {
  uint32_t size;                /* sizeof(metallib_launch) as the runtime knows it */
  uint32_t flags;               /* 0 for now */
  uint32_t threads[3];          /* threads_per_grid: dispatchThreads' argument, or threadgroups *
                                   threadgroup_size */
  uint32_t threadgroup_size[3]; /* as dispatched; groups at the edges are clipped to threads[] */
  uint32_t threadgroups[3];     /* ceil(threads / threadgroup_size) */
  uint32_t reserved;
  /* By buffer index; textures and samplers from METALLIB_FIRST_TEXTURE and METALLIB_FIRST_SAMPLER
   * on. As long as the highest index that the kernel declares asks for. */
  const metallib_buffer* buffers;
  const uint32_t*
      threadgroup_lengths; /* [METALLIB_MAX_BUFFERS], by threadgroup index, bytes, 0 if not set */
  const metallib_constant_value*
      constants; /* [kernel->n_constants]; NULL allowed when n_constants is 0 */
  const metallib_host* host;
  metallib_fault* fault;   /* may be NULL with the unchecked library */
  metallib_checks* checks; /* read by kernels compiled with -fshader-checks alone; NULL for none */
  metallib_log* log;       /* of METALLIB_KERNEL_LOGS; NULL: messages go nowhere */
} metallib_launch;

/* ---- kernels
 * -------------------------------------------------------------------------------------------------
 */

enum metallib_kernel_flags {
  METALLIB_KERNEL_FIBERS = 1u << 0, /* has barriers or simdgroup functions: one fiber a thread */
  /* Its code was left out (metal --on-demand, --deferred): scratch_size and run are NULL. A library
   * of its own brings them. */
  METALLIB_KERNEL_ABSENT = 1u << 1,
  /* For METALLIB_KERNEL_FIBERS: loops over the lanes of a simdgroup, and a fiber per simdgroup. */
  METALLIB_KERNEL_LANES = 1u << 2,
  /* No kernel but a [[visible]] function: run is its address, whatever its type, for
   * METALLIB_TABLE. */
  METALLIB_KERNEL_VISIBLE = 1u << 3,
  /* Compiled with -fshader-checks. */
  METALLIB_KERNEL_CHECKS = 1u << 5,
  /* Fast math: subnormal numbers that it reads are 0, and those that it would make. */
  METALLIB_KERNEL_FLUSHES = 1u << 4,
  /* Calls os_log, in a library compiled with -fmetal-enable-logging. */
  METALLIB_KERNEL_LOGS = 1u << 6,
};

typedef struct metallib_kernel {
  const char* name; /* [[host_name]] or the function's name: what newFunctionWithName: takes */
  uint32_t flags;   /* metallib_kernel_flags */
  uint32_t max_total_threads;        /* maxTotalThreadsPerThreadgroup: 1024 or
                                        [[max_total_threads_per_threadgroup(n)]] */
  uint32_t static_threadgroup_bytes; /* staticThreadgroupMemoryLength, each variable rounded up to
                                        16 bytes */
  uint32_t n_arguments;
  const metallib_argument*
      arguments; /* in order of declaration: the bound ones only, not the position attributes */
  uint32_t n_constants;
  const metallib_function_constant*
      constants; /* those of the library's file, in the order of a launch's values */
  /* Bytes of scratch that one worker needs for this launch (threadgroup memory, fiber stacks). Does
   * not read buffers, constants or fault. Constant for given threadgroup_size and
   * threadgroup_lengths. */
  uint64_t (*scratch_size)(const metallib_launch* launch);
  /* Runs threadgroups [first, first + count); number g is the threadgroup at
   * x = g % threadgroups[0], y = g / threadgroups[0] % threadgroups[1], z = g / (threadgroups[0] *
   * threadgroups[1]). */
  void (*run)(const metallib_launch* launch, uint64_t first, uint64_t count, void* scratch);
} metallib_kernel;

typedef struct metallib_library {
  uint32_t magic;       /* METALLIB_MAGIC */
  uint32_t abi_version; /* METALLIB_ABI_VERSION: refuse another one, "compile it again" */
  uint32_t size;        /* sizeof(metallib_library) */
  uint32_t checked;     /* 1 in metallib_v1_checked, 2 where it was compiled with -fshader-checks */
  const metallib_kernel* const*
      begin; /* kernels: begin, begin + 1, ... end - 1; in no particular order, names unique */
  const metallib_kernel* const* end;
  const char* compiler; /* "metal_ops metal 1 (clang 19.1.4)" */
  const char* target;   /* what the code was compiled for: "x86-64-v3", "native", ... */
  int (*supported)(
      void); /* 0: this CPU lacks something that `target` has: refuse the library in a sentence */
} metallib_library;

/* ---- code for GPUs, where the library was compiled with --gpu: metallib_gpu_v1, a
 * metallib_gpu_library. Every shader file has one text a target. A kernel's entry point is
 * `msl_<name>`, characters other than letters, digits and _ as $ and two hexadecimal digits; its
 * parameters are those of python/metal_ops/metal/gpu.py. */
#define METALLIB_GPU_SYMBOL "metallib_gpu_v1"

typedef struct metallib_gpu_code {
  const char* target; /* "sm_80" */
  const char* text;   /* PTX, with a zero behind it */
  uint64_t length;    /* of the text */
} metallib_gpu_code;

typedef struct metallib_gpu_library {
  const metallib_gpu_code* begin; /* NULL without code for GPUs */
  const metallib_gpu_code* end;
} metallib_gpu_library;

#ifdef __cplusplus
}
#endif

#endif /* HOSTMETAL_MSL_METALLIB_ABI_H_ */
