"""One file per op family: the public functions and their registered gradients. Files are found by name.

Type checkers read __init__.pyi, which `make build` makes.
"""

import importlib
import inspect
import pkgutil

import tensorflow as tf

# The attributes that TensorFlow's decorator leaves on a function. The ops have no control flow that depends on tensors,
# so AutoGraph does not have to rewrite them in users' functions; marked they are called as they are, without the
# decorator's own call.
_AS_IT_IS = vars(tf.autograph.experimental.do_not_convert(lambda: None))

__all__: list[str] = []
for _file in pkgutil.iter_modules(__path__):
    if not _file.name.startswith("_"):
        _module = importlib.import_module(f"{__name__}.{_file.name}")
        globals().update({name: getattr(_module, name) for name in _module.__all__})
        __all__ += _module.__all__
for _name in __all__:
    if inspect.isfunction(globals()[_name]):
        vars(globals()[_name]).update({k: v for k, v in _AS_IT_IS.items() if k != "__wrapped__"})
