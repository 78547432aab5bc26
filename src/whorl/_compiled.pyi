from importlib.machinery import ModuleSpec
from types import ModuleType

NAMES: tuple[str, ...]

def make_module(spec: ModuleSpec, /) -> ModuleType: ...
