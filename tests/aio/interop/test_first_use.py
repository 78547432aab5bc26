"""A method of the loop that few programs use is imported at its first use, and is the same method then."""

from __future__ import annotations

import ast
import asyncio
import enum
import inspect
import pkgutil
import subprocess
import sys
import threading
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import pytest

import whorl
from whorl.aio.interop.first_use import MethodAtFirstUse, ModuleAtFirstUse, found_in, import_all

SOURCE = """
async def wait(thing): return thing
def name(thing): return type(thing).__name__
"""


class Named:
    """The class whose names the coroutines get."""

    async def wait(self) -> None:
        """Do nothing."""


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a class with methods of a module that is not imported yet."""
    (tmp_path / "used_at_first.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "used_at_first", raising=False)
    module = ModuleAtFirstUse("used_at_first", Named)
    yield type("Kind", (), {"wait": module.wait, "name": module.name, "other": module.name})
    sys.modules.pop("used_at_first", None)


def test_a_method_is_imported_at_its_first_use(kind: Any) -> None:
    assert "used_at_first" not in sys.modules
    assert kind().name() == "Kind"
    assert "used_at_first" in sys.modules


def test_the_function_takes_the_place_of_the_descriptor(kind: Any) -> None:
    assert isinstance(vars(kind)["name"], MethodAtFirstUse)
    assert kind.name is vars(kind)["name"]
    assert type(vars(kind)["name"]) is FunctionType
    assert isinstance(vars(kind)["other"], MethodAtFirstUse)


def test_a_subclass_gets_the_method_of_its_base(kind: Any) -> None:
    derived: Any = type("Derived", (kind,), {"name": lambda self: "own " + super(derived, self).name()})
    assert derived().name() == "own Derived"
    assert derived.wait is kind.wait
    assert "wait" not in vars(derived)


def test_a_coroutine_has_the_name_that_it_has_in_the_other_class(kind: Any) -> None:
    assert kind.wait.__qualname__ == "Named.wait"
    assert kind.name.__qualname__ == "name"


def test_a_method_that_was_replaced_before_its_first_use_stays_replaced(kind: Any) -> None:
    before = vars(kind)["name"]
    kind.name = lambda thing: "replaced"
    assert before.function()(1) == "int"
    assert kind().name() == "replaced"


def test_a_method_that_was_replaced_for_a_while_comes_back(kind: Any) -> None:
    with mock.patch.object(kind, "name", return_value="replaced"):
        assert kind().name() == "replaced"
    assert kind().name() == "Kind"


def test_a_function_that_a_thread_uses_already_gets_no_other_name(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_coroutine_function = inspect.iscoroutinefunction
    names: list[str] = []

    def use_it_first() -> None:
        names.append(kind.wait.__qualname__)
        kind.wait.__qualname__ = "used by the other thread"

    def in_the_middle(function: Any) -> bool:
        monkeypatch.setattr(inspect, "iscoroutinefunction", is_coroutine_function)
        thread = threading.Thread(target=use_it_first)
        thread.start()
        thread.join()
        return is_coroutine_function(function)

    monkeypatch.setattr(inspect, "iscoroutinefunction", in_the_middle)
    function = kind.wait
    assert names == ["Named.wait"]
    assert function.__qualname__ == "used by the other thread"
    assert kind.wait is function


def test_all_methods_can_be_imported_at_once(kind: Any) -> None:
    import_all(type("Derived", (kind,), {}))
    assert not any(isinstance(each, MethodAtFirstUse) for each in vars(kind).values())


def test_a_method_is_found_in_a_class_without_its_import(kind: Any) -> None:
    derived = type("Derived", (kind,), {"other": 1})
    assert found_in(derived, "name") is vars(kind)["name"]
    assert found_in(derived, "other") == 1
    assert "used_at_first" not in sys.modules
    with pytest.raises(AttributeError, match="type object 'Derived' has no attribute 'none'"):
        found_in(derived, "none")


def test_a_derived_class_of_loops_imports_nothing() -> None:
    code = "import sys, whorl\nclass Derived(whorl.EventLoop):\n    def call_soon(self): pass\n"
    late = "print('whorl.aio.sockets.add_reader' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code + late], text=True) == "False\n"


def is_late(thing: Any) -> bool:
    return isinstance(thing, MethodAtFirstUse)


def test_each_method_of_the_loop_is_in_its_module() -> None:
    for name, method in list(vars(whorl.EventLoop).items()):
        if isinstance(method, MethodAtFirstUse):
            assert method.function() is getattr(whorl.EventLoop, name)
    assert not [name for name in dir(whorl.EventLoop) if is_late(vars(whorl.EventLoop).get(name))]


def test_each_coroutine_of_the_loop_has_the_name_of_that_of_asyncio() -> None:
    for name in dir(whorl.EventLoop):
        method = getattr(whorl.EventLoop, name)
        if inspect.iscoroutinefunction(method):
            assert method.__qualname__ == getattr(asyncio.SelectorEventLoop, name).__qualname__


# Each replaces something after the import and before the first use, and prints whether it is noticed.
REPLACEMENTS = {
    "a method of the loop": """
whorl.EventLoop.getaddrinfo = lambda *args: None
from whorl.aio.interop.stock import has_stock_connection_methods
print(not has_stock_connection_methods(whorl.EventLoop))
""",
    "the executor of a loop": """
whorl.EventLoop.run_in_executor = lambda *args: None
from whorl.aio.interop.stock import has_stock_run_in_executor
loop = whorl.EventLoop()
print(not has_stock_run_in_executor(loop))
loop.close()
""",
    "the work of threads": """
from concurrent.futures import thread
submit = thread.ThreadPoolExecutor.submit
thread.ThreadPoolExecutor.submit = lambda *args: submit(*args)
from whorl.aio.interop.stock import has_stock_executor_methods
print(not has_stock_executor_methods())
""",
    "the futures of threads": """
from concurrent.futures import _base
set_result = _base.Future.set_result
_base.Future.set_result = lambda *args: set_result(*args)
from whorl.aio.interop.stock import has_stock_executor_methods
print(not has_stock_executor_methods())
""",
    "a method of TLS": """
import ssl
read = ssl.SSLObject.read
ssl.SSLObject.read = lambda *args: read(*args)
from whorl.aio.tls.write_path import records_of
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
sslobj = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
print(records_of(sslobj) is sslobj)
""",
    "a class of streams": """
from asyncio import streams
reader = streams.StreamReader
streams.StreamReader = asyncio.StreamReader = type("Replaced", (reader,), {})
from whorl.aio.streams import reader_writer
print(reader_writer.StreamReader.__base__ is reader)
""",
    "a base class": """
server = asyncio.Server
asyncio.Server = asyncio.base_events.Server = object
from whorl.aio.connections.server import Server
print(issubclass(Server, server))
""",
    "nothing any more": """
from unittest import mock
from concurrent.futures import thread
from whorl.aio.interop.stock import has_stock_executor_methods
with mock.patch.object(thread.ThreadPoolExecutor, "submit"):
    was_noticed = not has_stock_executor_methods()
print(was_noticed and has_stock_executor_methods())
""",
    "nothing, but there is a derived class of Whorl's": """
whorl.new_event_loop(tasks="compiled").close()
from whorl.aio.interop.stock import has_stock_run_in_executor
loop = whorl.EventLoop()
print(has_stock_run_in_executor(loop))
loop.close()
""",
    "nothing": """
from whorl.aio.interop import stock
print(stock.has_stock_connection_methods(whorl.EventLoop) and stock.has_stock_executor_methods())
""",
}


@pytest.mark.parametrize("replaced", REPLACEMENTS)
def test_a_replacement_is_noticed_before_the_first_use(replaced: str) -> None:
    code = "import asyncio, whorl\n" + REPLACEMENTS[replaced]
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"


# Each replaces something during the first use only, and prints whether it is gone afterwards.
REPLACEMENTS_FOR_A_WHILE = {
    "concurrent.futures.ThreadPoolExecutor": """
async def wait(): return await asyncio.get_running_loop().run_in_executor(None, int)
with mock.patch("concurrent.futures.ThreadPoolExecutor", side_effect=ZeroDivisionError):
    try:
        whorl.run(wait())
        was_asked = False
    except ZeroDivisionError:
        was_asked = True
print(was_asked and whorl.run(wait()) == 0)
""",
    "warnings.warn": """
with mock.patch("warnings.warn"):
    whorl.EventLoop.connect_read_pipe
    from whorl.aio.connections.pipes import ReadPipeTransport
import warnings
print(ReadPipeTransport.__del__.__defaults__ == (warnings.warn,))
""",
    "asyncio.log.logger": """
with mock.patch("asyncio.log.logger"):
    whorl.EventLoop.create_server
from whorl.aio.connections import server
print(server.logger is asyncio.log.logger)
""",
    "sys.modules": """
import sys
with mock.patch.dict(sys.modules):
    whorl.EventLoop.create_server
    server = sys.modules["whorl.aio.connections.server"]
print(whorl.EventLoop.create_server is server.create_server and server.__name__ not in sys.modules)
""",
}


@pytest.mark.parametrize("replaced", REPLACEMENTS_FOR_A_WHILE)
def test_a_replacement_during_the_first_use_is_not_kept(replaced: str) -> None:
    code = "import asyncio, whorl\nfrom unittest import mock\n" + REPLACEMENTS_FOR_A_WHILE[replaced]
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"


# An interrupt comes at the beginning of each import once. So each module ends in the middle for each one that
# it imports.
INTERRUPTED = """
import asyncio, sys, whorl
seen = set()
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("whorl.") and name not in seen:
            seen.add(name)
            raise KeyboardInterrupt
def wait_for(action):
    while True:
        try:
            return action()
        except KeyboardInterrupt:
            pass
sys.meta_path.insert(0, Interrupts())
from whorl.aio.loop.event_loop import import_methods
wait_for(import_methods)
wait_for(lambda: whorl.open_connection)
wait_for(lambda: whorl.new_event_loop().close())  # which may be the first with Whorl's own tasks
async def answer(reader, writer):
    writer.write(await reader.readline())
    writer.close()
async def ask(host, port):
    reader, writer = await whorl.open_connection(host, port)
    writer.write(b"line\\n")
    line = await reader.read()
    writer.close()
    await writer.wait_closed()
    return line
async def main():
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        answers = [await ask(host, port) for host in ("127.0.0.1", "localhost")]
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    output, _ = await child.communicate(b"given")
    return answers, output, await asyncio.to_thread(int, "3"), len(seen) > 40
print(whorl.run(main()))
"""


def test_an_import_that_was_interrupted_is_made_again() -> None:
    answer = subprocess.check_output([sys.executable, "-c", INTERRUPTED], text=True)
    assert answer == "([b'line\\n', b'line\\n'], b'given', 3, True)\n"


# The first connection has no descriptor, neither for a socket nor to read a module.
OUT_OF_DESCRIPTORS = """
import asyncio, errno, os, resource, socket, whorl
async def main():
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = os.dup(listener.fileno())
        os.close(free)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            await loop.create_connection(asyncio.Protocol, *listener.getsockname())
        except OSError as error:
            print(errno.errorcode[error.errno])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        transport, _ = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
        print(transport.get_extra_info("peername") == listener.getsockname())
        transport.close()
whorl.run(main())
"""


def test_a_first_connection_without_descriptors_fails_and_the_next_one_works() -> None:
    answer = subprocess.check_output([sys.executable, "-c", OUT_OF_DESCRIPTORS], text=True)
    assert answer == "EMFILE\nTrue\n"


LATE = "\n".join(
    (
        "import sys, whorl",
        "early = set(sys.modules)",
        "from whorl.aio.loop.event_loop import import_methods",
        "import_methods()",
        "print(*(name for name in sys.modules.keys() - early if name.startswith('whorl.')))",
    )
)
REPLACED_BY_PROGRAMS = {"asyncio", "concurrent", "logging", "socket", "ssl", "subprocess", "warnings"}
NOT_REPLACED = (ModuleType, int, tuple, enum.Enum)


class Kept(ast.NodeVisitor):
    """The objects that a module takes out of others when it is imported."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.modules: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self.modules[each.asname or each.name.partition(".")[0]] = each.name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.names |= {f"{node.module}.{each.name}" for each in node.names}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        root, _, rest = ast.unparse(node).partition(".")
        self.names |= {f"{self.modules[root]}.{rest}"} if root in self.modules else set()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for each in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if each is not None:
                self.visit(each)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A lambda takes nothing before it is called."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        for each in node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else (*node.body, *node.orelse):
            self.visit(each)


def is_replaced_by_programs(name: str) -> bool:
    """Return whether a program may replace what has this name, as functions and classes of Python's."""
    if name.partition(".")[0] not in REPLACED_BY_PROGRAMS:
        return False
    thing = pkgutil.resolve_name(name)
    if isinstance(thing, type):
        is_written_in_c = thing.__module__.startswith("_")
        return not is_written_in_c and not issubclass(thing, BaseException | enum.Enum)
    return not isinstance(thing, NOT_REPLACED)


def test_a_module_that_comes_at_first_use_takes_what_programs_replace_from_at_import() -> None:
    late = subprocess.check_output([sys.executable, "-c", LATE], text=True).split()
    assert len(late) > 40
    kept = {}
    for name in late:
        source = Path(whorl.__file__).parent.joinpath(*name.split(".")[1:])
        path = source.with_suffix(".py") if source.with_suffix(".py").exists() else source / "__init__.py"
        visitor = Kept()
        visitor.visit(ast.parse(path.read_text()))
        kept[name] = {each for each in visitor.names if is_replaced_by_programs(each)}
    assert {name: names for name, names in kept.items() if names} == {}
