// The pass that runs by itself: after placement, on every function that is run for the first time.

#ifndef METAL_OPS_GRAPH_PASS_H_
#define METAL_OPS_GRAPH_PASS_H_

#include <memory>
#include <string>

#include "graph/rewriter.h"

namespace metal_ops::fusion {

// The pass' findings in one graph. `explain` sets one up for its own thread and then has TensorFlow
// run its passes.
struct Recording {
  tensorflow::GraphDef before, after;
  Plan plan;
  absl::Status status;
  int graphs = 0;
};

class RecordPass {
 public:
  explicit RecordPass(Recording* recording);
  ~RecordPass();
};

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_PASS_H_
