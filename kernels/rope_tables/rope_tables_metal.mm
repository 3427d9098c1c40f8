// MetalRopeTables on the Metal device.

#include "kernels/rope_tables/rope_tables_call.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

Status RopeTables(MetalCall& call) {
  const RopeTablesParams params = ToRopeTablesParams(call);
  const char* const form = call.Bool("interleaved") ? "neighbours" : "halves";
  return call.Launch({"rope_tables", form, call.in(0).dtype()},
                     Grid(params.pairs, params.inner, params.outer * params.middle),
                     {{"x", call.in(0)},
                      {"cosines", call.in(1)},
                      {"sines", call.in(2)},
                      {"y", call.out(0)},
                      {"params", params}});
}
METAL_KERNEL("MetalRopeTables", RopeTables);

}  // namespace
}  // namespace metal_ops
