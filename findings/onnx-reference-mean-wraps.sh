#!/bin/bash
# ReduceMean of four int32 of 2^30 each, whose mean is 2^30: expected was that the reference implementation is right
# and an engine may wrap. It is the other way around: the reference adds in int32 and says 0, ONNX Runtime is right.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 2> /dev/null ||
  { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import sys
import numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

x = helper.make_tensor_value_info("x", TensorProto.INT32, [4])
y = helper.make_tensor_value_info("y", TensorProto.INT32, [])
graph = helper.make_graph([helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0)], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
given = {"x": np.full(4, 2**30, np.int32)}
reference = int(ReferenceEvaluator(model).run(None, given)[0])
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
engine = int(session.run(None, given)[0])
print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
print("expected:", 2**30, "of the reference")
print("got:", reference, "of the reference,", engine, "of ONNX Runtime")
sys.exit(0 if reference != 2**30 and engine == 2**30 else 1)
EOF
