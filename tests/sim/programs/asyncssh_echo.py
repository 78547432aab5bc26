"""asyncssh: a server that runs a line editor's echo, and a client with a password."""

from __future__ import annotations

import logging
from typing import Any

import asyncssh

from tests.sim.programs.bearing import attempts

LINES = 5


class Server(asyncssh.SSHServer):
    """A server with one password."""

    def begin_auth(self, username: str) -> bool:
        """Ask for a password."""
        return True

    def password_auth_supported(self) -> bool:
        """Take passwords."""
        return True

    def validate_password(self, username: str, password: str) -> bool:
        """Check the password."""
        return (username, password) == ("user", "secret")


async def echo(process: Any) -> None:
    """Answer each line."""
    try:
        async for line in process.stdin:
            process.stdout.write(line)
        process.exit(0)
    except (asyncssh.Error, OSError):
        pass


async def main(world: Any) -> int:
    """Serve, log in, and have lines echoed."""
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    server = None
    async for attempt in attempts(asyncssh.Error):
        with attempt:
            key = asyncssh.generate_private_key("ssh-ed25519")
            server = await asyncssh.create_server(
                Server, "10.0.0.1", 22, server_host_keys=[key], process_factory=echo, login_timeout=600
            )
    assert server is not None
    got = 0
    async for attempt in attempts(asyncssh.Error):
        with attempt:
            async with asyncssh.connect(
                "main",
                22,
                username="user",
                password="secret",
                known_hosts=None,
                client_keys=None,
                config=None,
                agent_path=None,
                login_timeout=600,
            ) as connection:
                got = 0
                process = await connection.create_process()
                for number in range(LINES):
                    process.stdin.write(f"line {number}\n")
                    assert await process.stdout.readline() == f"line {number}\n"
                    got += 1
                process.stdin.write_eof()
                await process.wait_closed()
    server.close()
    assert got == LINES
    return got
