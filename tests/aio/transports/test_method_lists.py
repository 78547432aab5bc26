"""The lists that name the methods of a stream transport: a new method is put into those that apply to it."""

from __future__ import annotations

import asyncio
import re
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import socket_pair
from whorl.aio.transports.byte_transport import InheritedMethod
from whorl.aio.transports.public import OFTEN_CALLED, SocketTransport
from whorl.aio.transports.tls import TLSTransport

pytestmark = pytest.mark.usefixtures("no_leak")

#: Where a method is listed, and when.
WHERE = {
    "OFTEN_CALLED": "`OFTEN_CALLED` in whorl/aio/transports/public.py, for `bind_compiled_methods`, if "
    "programs call it for each message",
    "InheritedMethod": "`SocketTransport` in whorl/aio/transports/public.py, as `InheritedMethod`, if "
    "asyncio's transport inherits it from `asyncio.BaseTransport`",
}
ATTRIBUTES = (
    "`SocketPrivateAttributes` in whorl/aio/transports/private_attributes.py: each private attribute of "
    "asyncio's transport that belongs to it"
)

#: The public methods, each with the lists that name it.
METHODS = {
    "abort": "",
    "can_write_eof": "",
    "close": "OFTEN_CALLED",
    "fileno": "",
    "get_extra_info": "InheritedMethod",
    "get_protocol": "OFTEN_CALLED",
    "get_write_buffer_limits": "",
    "get_write_buffer_size": "OFTEN_CALLED",
    "has_ref": "",
    "is_active": "",
    "is_closing": "OFTEN_CALLED",
    "is_reading": "OFTEN_CALLED",
    "pause_reading": "OFTEN_CALLED",
    "ref": "",
    "resume_reading": "OFTEN_CALLED",
    "set_protocol": "",
    "set_write_buffer_limits": "",
    "unref": "",
    "write": "OFTEN_CALLED",
    "write_eof": "",
    "writelines": "OFTEN_CALLED",
}
#: The private attributes of asyncio's transport that Whorl's lacks: how asyncio reads and writes. Two of them
#: are new in Python 3.15.
ABSENT = {"_buffer_size", "_protocol_connected", "_read_ready_cb", "_write_ready"}


def is_listed(name: str, where: str) -> bool:
    """Return whether the list names the method."""
    if where == "OFTEN_CALLED":
        return name in OFTEN_CALLED
    return isinstance(vars(SocketTransport).get(name), InheritedMethod)


def test_stream_transport_has_no_method_without_a_decision() -> None:
    public = {name for name in dir(SocketTransport) if not name.startswith("_")} - {"data", "loop"}
    places = "\n- ".join([*WHERE.values(), ATTRIBUTES])
    new = sorted(public - METHODS.keys())
    assert not new, f"New methods: {new}. Add a row to METHODS here, and each method to\n- {places}"
    assert METHODS.keys() == public, "These methods are gone: take them out of METHODS and the lists"


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", METHODS)
def test_stream_transport_lists_agree_with_the_decisions(name: str, where: str) -> None:
    belongs = where in METHODS[name].split()
    assert is_listed(name, where) == belongs, (
        f"METHODS says that `{name}` is {'' if belongs else 'not '}listed. The list: {WHERE[where]}"
    )


@pytest.mark.parametrize("name", METHODS)
def test_inherited_methods_are_those_that_asyncio_inherits(name: str) -> None:
    owner = next((cls for cls in _SelectorSocketTransport.__mro__ if name in vars(cls)), None)
    assert is_listed(name, "InheritedMethod") == (owner is asyncio.BaseTransport), (
        f"{name}: {WHERE['InheritedMethod']}"
    )


@pytest.mark.parametrize("transport", [SocketTransport, TLSTransport])
@pytest.mark.parametrize("name", OFTEN_CALLED)
def test_bind_compiled_methods_gives_each_class_its_own_descriptors(transport: type, name: str) -> None:
    assert name in vars(transport) or not hasattr(transport, name), (
        f"{transport.__qualname__} inherits `{name}`: decorate the class with `bind_compiled_methods`"
    )


def test_private_attributes_are_those_of_asyncio() -> None:
    async def lacking(loop: Any, names: set[str]) -> set[str]:
        """Return the names that the loop's transport lacks; asyncio's own transport adds its names before."""
        ours, peer = socket_pair("tcp")
        with peer:
            transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
            if type(transport) is _SelectorSocketTransport:
                names |= set(vars(transport)) | data_of(_SelectorSocketTransport)
            missing = {name for name in names if not hasattr(transport, name)}
            transport.close()
            await asyncio.sleep(0)
        return missing

    names: set[str] = set()
    for make_loop in (asyncio.SelectorEventLoop, whorl.EventLoop):
        with asyncio.Runner(loop_factory=make_loop) as runner:
            missing = runner.run(lacking(runner.get_loop(), names))
    assert len(names) > 15
    new = sorted(missing - ABSENT)
    assert not new, f"asyncio's transport also has {new}. Put into {ATTRIBUTES}"
    assert not names & ABSENT - missing, "no longer absent: take it out of ABSENT"


def data_of(cls: type) -> set[str]:
    """Return the private names of a class and its bases that are no methods."""
    found = {name: value for base in cls.__mro__ for name, value in vars(base).items()}
    return {name for name, value in found.items() if re.match("_[^_]", name) and not callable(value)}
