"""OpenSSL's callbacks and their own connection: OpenSSL crashes if it is entered again."""

from __future__ import annotations

import pytest

from tests.aio.programs import run_program

IN_THE_HANDSHAKE = """
import asyncio
from tests.aio.sockets_for_tests import Recorder
from tests.aio.tls_contexts import client_context, server_context
from whorl.aio.transports.tls import TLSProtocol
import ssl

class Underneath(asyncio.Transport):
    aborted = False
    def write(self, data):
        pass
    def is_closing(self):
        return self.aborted
    def abort(self):
        self.aborted = True

loop, done = new_loop(), []
loop.set_exception_handler(lambda loop, context: done.append(str(context)))

def called_back(tls, name, context):
    try:
        print(ACTION)
    except RuntimeError as error:
        print("RuntimeError:", error)

context = server_context()
context.sni_callback = called_back
layer = TLSProtocol(loop, Recorder(), context, None, server_side=True)
underneath = Underneath()
layer.connection_made(underneath)
outgoing = ssl.MemoryBIO()
client = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
try:
    client.do_handshake()
except ssl.SSLWantReadError:
    hello = outgoing.read()
layer.data_received(hello)
print(done, underneath.aborted)
layer.connection_lost(None)
loop.run_until_complete(asyncio.sleep(0))
loop.close()
"""


@pytest.mark.parametrize(
    "action",
    [
        "layer.data_received(hello)",
        "layer.get_buffer(9)",
        "layer.buffer_updated(9)",
        "layer.eof_received()",
    ],
)
def test_a_connection_that_is_fed_by_its_own_callback_refuses(action: str) -> None:
    answer = run_program(IN_THE_HANDSHAKE.replace("ACTION", action))
    assert answer.stdout.splitlines() == [
        "RuntimeError: a callback of OpenSSL's must not have its own connection go on",
        "[] False",
    ]
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("action", ["layer._abort(None)", "layer._app_transport.close()"])
def test_a_connection_ended_by_a_callback_in_the_handshake_is_aborted(action: str) -> None:
    answer = run_program(IN_THE_HANDSHAKE.replace("ACTION", action))
    assert answer.stdout.splitlines() == ["None", "[] True"]
    assert (answer.returncode, answer.stderr) == (0, "")


OPEN = """
import asyncio
from tests.aio.sockets_for_tests import BufferedRecorder, Recorder, turns
from tests.aio.tls_contexts import client_context, server_context, tls_pair

loop, actions, errors = new_loop(), [], []
loop.set_exception_handler(lambda loop, context: errors.append(context))

async def main():
    def called_back(*_):
        if actions:
            actions.pop()()

    contexts = client_context(), server_context()
    contexts[0]._msg_callback = called_back
    async with tls_pair(loop, client=CLIENT, contexts=contexts) as (client, server):
        await turns(10)  # The tickets of the session have arrived.
        transport = client.transport
        BODY
    assert not actions
    assert errors == [], errors
    print("end")

loop.run_until_complete(asyncio.wait_for(main(), 10))
loop.close()
"""


def run_open(body: str, client: str = "Recorder") -> None:
    body = body.strip().replace("\n", "\n        ")
    answer = run_program(OPEN.replace("CLIENT", client).replace("BODY", body))
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "end\n", "")


@pytest.mark.parametrize("inner", ["transport.write(b'inner')", "transport.writelines([b'in', b'ner'])"])
@pytest.mark.parametrize("size", [1, 20_000, 300_000])
def test_data_written_by_a_callback_follows_the_write_in_progress(inner: str, size: int) -> None:
    run_open(
        f"""
actions.append(lambda: {inner})
transport.write(b"o" * {size})
assert await server.protocol.until_received({size} + 5) == b"o" * {size} + b"inner"
"""
    )


@pytest.mark.parametrize("client", ["Recorder", "BufferedRecorder"])
@pytest.mark.parametrize("size", [1, 100_000])
def test_data_written_by_a_callback_during_a_read_is_sent(client: str, size: int) -> None:
    run_open(
        f"""
actions.append(lambda: transport.write(b"inner"))
server.transport.write(b"o" * {size})
assert await client.protocol.until_received({size}) == b"o" * {size}
assert await server.protocol.until_received(5) == b"inner"
""",
        client,
    )


@pytest.mark.parametrize("cause", ["transport.write(b'outer')", "server.transport.write(b'outer')"])
def test_a_callback_that_closes_loses_nothing_that_was_written(cause: str) -> None:
    run_open(
        f"""
def close():
    transport.write(b"inner")
    transport.close()
    assert transport.is_closing()
actions.append(close)
{cause}
await server.protocol.until_lost()
await client.protocol.until_lost()
assert bytes(server.protocol.received).endswith(b"inner")
"""
    )


@pytest.mark.parametrize("client", ["Recorder", "BufferedRecorder"])
@pytest.mark.parametrize(
    "cause", ["transport.write(b'outer')", "server.transport.write(b'outer')", "server.transport.close()"]
)
def test_a_callback_may_abort(cause: str, client: str) -> None:
    run_open(
        f"""
actions.append(transport.abort)
{cause}
await client.protocol.until_lost()
assert not client.protocol.received
""",
        client,
    )
