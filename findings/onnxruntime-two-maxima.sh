#!/bin/bash
# Max of [1, NaN, 2] by two operators of ONNX: expected was NaN of both, as of the reference. ONNX Runtime's Max gives
# NaN, and its ReduceMax 2, so that a graph's rewriting from one to the other changes the result.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 2> /dev/null ||
  { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import sys
import numpy as np, onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("reduced", "pairs")]
nodes = [
    helper.make_node("ReduceMax", ["x"], ["reduced"], keepdims=0),
    helper.make_node("Split", ["x"], ["a", "b", "c"], num_outputs=3),
    helper.make_node("Max", ["a", "b", "c"], ["pairs"]),
]
model = helper.make_model(
    helper.make_graph(nodes, "g", [x], outputs), opset_imports=[helper.make_opsetid("", 23)], ir_version=10
)
given = {"x": np.array([1, np.nan, 2], "f4")}
right = [float(y.item()) for y in ReferenceEvaluator(model).run(None, given)]
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
got = [float(y.item()) for y in session.run(None, given)]
print("onnxruntime", onnxruntime.__version__)
print("expected: nan of ReduceMax and of Max; the reference says", right)
print("got:", got)
sys.exit(0 if got[0] == 2 and np.isnan(got[1]) and np.isnan(right).all() else 1)
EOF
