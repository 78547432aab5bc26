"""A `.py` and the `.pxd` beside it agree.

Cython compiles many disagreements silently. An attribute that is declared and never set reads as None or 0.
An attribute that is set and never declared fails only when that line runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.source_trees import Source, all_sources, parsed

pytest.importorskip("Cython", reason="the .pxd files are read with Cython's own parser")

from Cython.Compiler import Nodes
from Cython.Compiler.Main import CompilationOptions, Context
from Cython.Compiler.Scanning import FileSourceDescriptor

from build_tools.sources import SOURCES

pytestmark = pytest.mark.text

IMPLICIT = {"__weakref__", "__dict__"}  # declared, but never set
INITIALIZERS = {"__init__", "_set_up"}  # a handle's `__init__` calls `_set_up`
COMPILED = [source for source in all_sources() if source.is_compiled]
CONSTANTS = {name for source in COMPILED for name in source.cimports()} - {each.name for each in COMPILED}
EACH = pytest.mark.parametrize("source", COMPILED, ids=lambda source: source.name)

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"

_reader: ProcessPoolExecutor


@dataclass
class DeclaredClass:
    """A `cdef class` of a `.pxd`."""

    bases: list[str]
    attributes: set[str] = field(default_factory=set)
    pointers: set[str] = field(default_factory=set)
    """Attributes of a C type for which Python has nothing: pointers and arrays."""
    methods: set[str] = field(default_factory=set)


@dataclass
class Declarations:
    """The declarations of a `.pxd` that its `.py` has to define."""

    classes: dict[str, DeclaredClass] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    unchecked: list[str] = field(default_factory=list)
    """Functions after whose every call Cython must ask whether an exception was raised."""
    returns: list[int] = field(default_factory=list)
    """The lines of each `return` in an `except` clause: inline functions have their bodies here."""


@pytest.fixture(scope="module", autouse=True)
def reader() -> Iterator[None]:
    """Start a process that reads the `.pxd` files: Cython keeps 130 MB of tables until its process ends."""
    global _reader
    with ProcessPoolExecutor(1, get_context("fork")) as _reader:
        yield
    declarations.cache_clear()
    parsed.cache_clear()


@cache
def declarations(source: Source) -> Declarations:
    return _reader.submit(read_declarations, source.name, source.path.with_suffix(".pxd")).result()


def read_declarations(name: str, path: Path) -> Declarations:
    context = Context.from_options(CompilationOptions(include_path=[str(SOURCES)], language_level=3))
    scope = context.find_submodule(name)  # `find_module` would analyse all that it cimports, too
    tree = context.parse(FileSourceDescriptor(str(path), str(path)), scope, pxd=True, full_module_name=name)
    found = Declarations()
    for node in statements(tree.body):
        if isinstance(node, Nodes.CClassDefNode):
            found.classes[node.class_name] = declared_class(node, found.unchecked)
        elif isinstance(node, Nodes.CVarDefNode):
            for name, kind in declared_names(node, found.unchecked):
                (found.functions if kind == "function" else found.variables).add(name)
    for node in nodes_below(tree):
        if isinstance(node, Nodes.ExceptClauseNode):
            found.returns += [
                each.pos[1] for each in nodes_below(node) if isinstance(each, Nodes.ReturnStatNode)
            ]
    return found


def nodes_below(node: Nodes.Node) -> Iterator[Nodes.Node]:
    """Yield all nodes of Cython's below one of them."""
    for name in node.child_attrs or ():
        children = getattr(node, name)
        for child in children if isinstance(children, list) else [children]:
            if child is not None:
                yield child
                yield from nodes_below(child)


def declared_class(node: Nodes.CClassDefNode, unchecked: list[str]) -> DeclaredClass:
    found = DeclaredClass([base.name for base in node.bases.args])
    for statement in statements(node.body):
        if isinstance(statement, Nodes.CVarDefNode):
            for name, kind in declared_names(statement, unchecked):
                {"function": found.methods, "pointer": found.pointers, "value": found.attributes}[kind].add(
                    name
                )
        elif isinstance(statement, Nodes.CFuncDefNode):
            found.methods.add(innermost(statement.declarator).name)
    return found


def statements(node: Nodes.Node) -> list[Nodes.Node]:
    return list(node.stats) if isinstance(node, Nodes.StatListNode) else [node]


def declared_names(node: Nodes.CVarDefNode, unchecked: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the names in one `cdef` or `cpdef` line, each with its kind: function, pointer or value."""
    for declarator in node.declarators:
        name = innermost(declarator).name
        if isinstance(declarator, Nodes.CFuncDeclaratorNode):
            is_void = getattr(node.base_type, "name", "") == "void"
            if is_void and declarator.exception_check and declarator.exception_value is None:
                unchecked.append(name)
            yield name, "function"
        elif isinstance(declarator, Nodes.CNameDeclaratorNode):
            yield name, "value"
        else:
            yield name, "pointer"


def innermost(declarator: Nodes.Node) -> Nodes.Node:
    while not isinstance(declarator, Nodes.CNameDeclaratorNode):
        declarator = declarator.base
    return declarator


def defined_classes(source: Source) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in source.tree.body if isinstance(node, ast.ClassDef)}


def defined_functions(node: ast.AST) -> set[str]:
    """Return the functions of a module or class, also those below an `if`, and names that stand for one."""
    found = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            found.add(child.name)
        elif isinstance(child, ast.Assign):
            found |= {target.id for target in child.targets if isinstance(target, ast.Name)}
        elif isinstance(child, ast.If | ast.Try):
            found |= defined_functions(child)
    return found


def attributes_set(function: ast.AST) -> set[str]:
    """Return the attributes of `self` that a function assigns."""
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def properties(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef) and item.decorator_list}


def compiled_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the compiled nodes below `node`: all but the bodies of `if not cython.compiled`."""
    yield node
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test) == "not cython.compiled":
        children = node.orelse
    for child in children:
        yield from compiled_nodes(child)


def family(source: Source, name: str) -> Iterator[tuple[DeclaredClass, ast.ClassDef]]:
    """Yield the class `name` of a module and the classes it derives from, as declared and as defined."""
    for home in (source, *COMPILED):
        if declared := declarations(home).classes.get(name):
            yield declared, defined_classes(home)[name]
            for base in declared.bases:
                yield from family(home, base)
            return


@EACH
def test_each_declared_class_is_defined_with_the_same_bases(source: Source) -> None:
    defined = defined_classes(source)
    for name, declared in declarations(source).classes.items():
        assert name in defined, f"{name} is declared, and not defined"
        assert [ast.unparse(base) for base in defined[name].bases] == declared.bases, name


@EACH
def test_declared_attributes_are_those_that_a_class_sets(source: Source) -> None:
    for name, declared in declarations(source).classes.items():
        node = defined_classes(source)[name]
        inherited = {
            attribute for parent, _ in list(family(source, name))[1:] for attribute in parent.attributes
        }
        initializers = [
            item
            for item in node.body
            if isinstance(item, ast.FunctionDef)
            if item.name in INITIALIZERS or item.name.startswith("_set_up")
        ]
        set_at_first = {attribute for item in initializers for attribute in attributes_set(item)} - inherited
        assert set_at_first - declared.pointers - properties(node) == declared.attributes - IMPLICIT, (
            f"{name}.__init__"
        )


@EACH
def test_methods_set_only_declared_attributes(source: Source) -> None:
    for name in declarations(source).classes:
        known = {
            item
            for declared, node in family(source, name)
            for item in declared.attributes | declared.pointers | properties(node)
        }
        assert attributes_set(defined_classes(source)[name]) <= known, name


@EACH
def test_each_declared_method_and_function_is_defined(source: Source) -> None:
    found = declarations(source)
    for name, declared in found.classes.items():
        assert declared.methods <= defined_functions(defined_classes(source)[name]), name
    assert found.functions <= defined_functions(source.tree)


@EACH
def test_each_declared_variable_is_assigned(source: Source) -> None:
    assigned = {
        node.id
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    imported = {item.name.rpartition(".")[2] for item in source.imports()}
    assert declarations(source).variables <= assigned | imported


@EACH
def test_modules_of_constants_are_cimported_where_they_are_imported(source: Source) -> None:
    """Otherwise each `limits.READ_SIZE` looks for the module and for the attribute, and does so silently."""
    imports = [node for node in compiled_nodes(source.tree) if isinstance(node, ast.ImportFrom)]
    imported = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    assert imported & CONSTANTS <= set(source.cimports())


@EACH
def test_no_function_is_declared_to_be_asked_for_exceptions_after_each_call(source: Source) -> None:
    """`cdef void f()` costs such a question; `noexcept`, `except -1` or an object do not."""
    assert declarations(source).unchecked == []


@EACH
def test_compiled_classes_have_no_slots(source: Source) -> None:
    """Their attributes stand in the `.pxd`. asyncio looks into the class of a future for one."""
    classes = [node for node in source.tree.body if isinstance(node, ast.ClassDef)]
    slotted = {
        node.name
        for node in classes
        for line in node.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__slots__"
    }
    assert slotted & set(declarations(source).classes) <= {"Future"}


@EACH
def test_compiled_modules_have_no_coroutines(source: Source) -> None:
    """A compiled coroutine is none for `inspect`, and its frames have no lines."""
    assert [node.name for node in ast.walk(source.tree) if isinstance(node, ast.AsyncFunctionDef)] == []


@EACH
def test_compiled_modules_have_no_with(source: Source) -> None:
    """Cython's crashes if its block raises and there is no memory for a traceback: it expects one."""
    found = [node.lineno for node in compiled_nodes(source.tree) if isinstance(node, ast.With)]
    assert found == [], "use `try` and `finally`"


@EACH
def test_compiled_modules_have_no_return_in_an_except_clause(source: Source) -> None:
    """Cython's releases the traceback of the exception, and crashes if there was no memory for one."""
    clauses = [node for node in compiled_nodes(source.tree) if isinstance(node, ast.ExceptHandler)]
    found = {node.lineno for each in clauses for node in compiled_nodes(each) if isinstance(node, ast.Return)}
    assert found == set(), "set a variable, and return it behind the `try` statement"
    assert declarations(source).returns == [], "the same in the .pxd"


@EACH
def test_compiled_modules_ask_for_no_file_of_their_own(source: Source) -> None:
    """All of them lie in one shared object, which does not stand where the `.py` stands."""
    names = {node.id for node in compiled_nodes(source.tree) if isinstance(node, ast.Name)}
    assert "__file__" not in names


@EACH
def test_compiled_modules_index_from_the_front(source: Source) -> None:
    """Without `wraparound`, `items[-1]` reads what lies before the list."""
    negative = [
        f"{source.path}:{node.lineno}: {ast.unparse(node)}"
        for node in compiled_nodes(source.tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.UnaryOp)
        and isinstance(node.slice.op, ast.USub)
    ]
    assert negative == []


ONE_CLASS = "class A:\n    def __init__(self):\n        self.x = 1\n    def f(self):\n        self.x = 2\n"


@pytest.mark.parametrize(
    ("check", "text", "declared"),
    [
        (test_each_declared_class_is_defined_with_the_same_bases, "", "cdef class A:\n    pass"),
        (
            test_each_declared_class_is_defined_with_the_same_bases,
            "class A(B): pass",
            "cdef class A:\n    pass",
        ),
        (test_declared_attributes_are_those_that_a_class_sets, ONE_CLASS, "cdef class A:\n    cdef int x, y"),
        (test_declared_attributes_are_those_that_a_class_sets, ONE_CLASS, "cdef class A:\n    pass"),
        (
            test_methods_set_only_declared_attributes,
            ONE_CLASS.replace("self.x = 2", "self.y = 2"),
            "cdef class A:\n    cdef int x",
        ),
        (
            test_each_declared_method_and_function_is_defined,
            ONE_CLASS,
            "cdef class A:\n    cdef int x\n    cdef object g(self)",
        ),
        (test_each_declared_method_and_function_is_defined, "", "cpdef int f(int x) except -1"),
        (test_each_declared_variable_is_assigned, "X = 1", "cdef int X, Y"),
        (
            test_no_function_is_declared_to_be_asked_for_exceptions_after_each_call,
            "def f(): pass",
            "cdef void f()",
        ),
        (test_compiled_modules_have_no_coroutines, "async def f(): pass", ""),
        (test_compiled_modules_have_no_with, "def f(lock):\n    with lock: pass", ""),
        (
            test_compiled_modules_have_no_return_in_an_except_clause,
            "def f():\n    try: g()\n    except OSError:\n        for x in y: return x",
            "",
        ),
        (
            test_compiled_modules_have_no_return_in_an_except_clause,
            "",
            "cdef inline object f():\n    try: g()\n    except OSError:\n        return 1",
        ),
        (test_compiled_modules_ask_for_no_file_of_their_own, "x = __file__", ""),
        (test_compiled_modules_index_from_the_front, "x = [1][-1]", ""),
    ],
)
def test_disagreements_are_noticed(
    tmp_path: Path, check: Callable[[Source], None], text: str, declared: str
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    path.with_suffix(".pxd").write_text(declared + "\n")
    with pytest.raises(AssertionError):
        check(Source("broken", path))


def test_agreement_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "fine.py"
    path.write_text(ONE_CLASS)
    path.with_suffix(".pxd").write_text("cdef class A:\n    cdef public int x\n    cpdef object f(self)\n")
    source = Source("fine", path)
    test_each_declared_class_is_defined_with_the_same_bases(source)
    test_declared_attributes_are_those_that_a_class_sets(source)
    test_methods_set_only_declared_attributes(source)
    test_each_declared_method_and_function_is_defined(source)


SIZES = "size|nbytes|limit|offset|unsent|filled|total"
NARROW = re.compile(
    rf"^ +(?:cdef (?:public |readonly )?|cpdef )(?:unsigned )?(?:int|short|long) (?:[^(]*, )?_?(?:{SIZES})\b"
)


@EACH
def test_sizes_are_as_wide_as_memory(source: Source) -> None:
    """A buffer may have more bytes than a C `int` counts: `Py_ssize_t`, or `int64_t` in files."""
    lines = source.path.with_suffix(".pxd").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if NARROW.match(line)] == []


def inline_functions(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of lines and the name of each inline function of a .pxd."""
    lines = [line for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        found = re.match(r"cdef inline [^(]*?(\w+)\(", line)
        if found:
            rest = lines[number + 1 :]
            yield next((at for at, line in enumerate(rest) if line[0] not in " )"), len(rest)), found[1]


def test_contributing_names_the_largest_inline_functions() -> None:
    headers = [source.path.with_suffix(".pxd").read_text(encoding="utf-8") for source in COMPILED]
    lines = {name: count for header in headers for count, name in inline_functions(header)}
    named = re.findall(r"^\| (`.*?`) \| `\w+/", CONTRIBUTING.read_text(encoding="utf-8"), re.MULTILINE)
    names = re.findall(r"\w+", " ".join(named))
    assert len(names) == 12
    assert min(lines[name] for name in names) >= sorted(lines.values())[-12]
