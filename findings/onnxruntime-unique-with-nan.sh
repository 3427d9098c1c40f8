#!/bin/bash
# The ONNX operator Unique over numbers of which one is NaN: expected were all the numbers, and NaN once or more, as
# ONNX's own reference gives. ONNX Runtime loses numbers that are there.
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

x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
graph = helper.make_graph([helper.make_node("Unique", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
given = {"x": np.array([np.nan, np.nan, 1, 2], "f4")}
right = ReferenceEvaluator(model).run(None, given)[0]
got = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)[0]
print("onnxruntime", onnxruntime.__version__, "onnx", onnx.__version__)
print("expected: 1 and 2 among them, as in the reference:", right)
print("got:", got)
sys.exit(0 if {1, 2} <= set(right.tolist()) and not {1, 2} <= set(got.tolist()) else 1)
EOF
