"""The names of a world: which addresses each has, as `getaddrinfo` answers (man 3 getaddrinfo)."""

from __future__ import annotations

import socket
from functools import lru_cache
from typing import Any

from whorl.sim.wire.ports import is_ipv6, plain

_NO_SERVICE = (socket.EAI_SERVICE, "Servname not supported for ai_socktype")
_NOT_FOUND = (socket.EAI_NONAME, "Name or service not known")
_SERVICES = {"http": 80, "https": 443, "ftp": 21, "ssh": 22, "smtp": 25, "domain": 53}
_SERVICE_NAMES = {port: name for name, port in _SERVICES.items()}
_WITH_DATAGRAMS = {"https", "domain"}  # the others are services of TCP alone
_KINDS = (
    (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
    (socket.SOCK_RAW, socket.IPPROTO_IP),
)

#: So many texts are kept with the family that they name.
_KNOWN = 1024


@lru_cache(maxsize=_KNOWN)
def family_of(text: str) -> int | None:
    """Return the family of a numeric address; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text.partition("%")[0])
        except OSError:
            continue
        return int(family)  # a plain number: two enum members take longer to compare
    return None


class Names:
    """All names and their addresses. Every host has its own name here."""

    def __init__(self) -> None:
        self._addresses: dict[str, list[str]] = {"localhost": ["127.0.0.1"]}

    def set(self, name: str, *addresses: str) -> None:
        """Give a name these addresses; none: the name is unknown from now on."""
        if addresses:
            self._addresses[name.lower().rstrip(".")] = list(addresses)
        else:
            self._addresses.pop(name.lower().rstrip("."), None)

    def addresses(self, name: str) -> list[str]:
        """Return the addresses of a name. Raises socket.gaierror (EAI_NONAME) for an unknown one."""
        found = self._addresses.get(name.lower().rstrip("."))
        if found is None:
            raise socket.gaierror(*_NOT_FOUND)
        return found

    def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, kind: int = 0, protocol: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        """Return what `socket.getaddrinfo` returns. Raises socket.gaierror as that does."""
        number, kinds = _service(port)
        if kind and kind not in [each for each, _ in kinds[:2]]:
            raise socket.gaierror(*_NO_SERVICE)
        if isinstance(host, bytes):
            host = host.decode("idna")
        if not host:
            if host is None and port is None:
                raise socket.gaierror(*_NOT_FOUND)
            passive = flags & socket.AI_PASSIVE
            found = ["0.0.0.0", "::"] if passive else ["::1", "127.0.0.1"]
        elif family_of(host) is not None:
            found = [plain(host) if family == socket.AF_INET else host]
        elif flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(*_NOT_FOUND)
        else:
            found = self.addresses(host)
        answers: list[tuple[Any, ...]] = []
        for ip in found:
            ip_family = socket.AF_INET6 if is_ipv6(ip) else socket.AF_INET
            if family not in (0, ip_family):
                continue
            address = (ip, number, 0, 0) if ip_family == socket.AF_INET6 else (ip, number)
            for each_kind, each_protocol in kinds:
                if kind in (0, each_kind) and protocol in (0, each_protocol):
                    name = (host or "") if flags & socket.AI_CANONNAME and not answers else ""
                    answers.append((ip_family, each_kind, each_protocol, name, address))
        if not answers:
            if host and family_of(host) is not None and family:
                raise socket.gaierror(socket.EAI_ADDRFAMILY, "Address family for hostname not supported")
            raise socket.gaierror(*_NOT_FOUND)
        return answers

    def getnameinfo(self, address: Any, flags: int = 0) -> tuple[str, str]:
        """Return the name and the service of an address, as `socket.getnameinfo` does."""
        ip, port = address[0], address[1]
        name = next((name for name, found in self._addresses.items() if ip in found), ip)
        service = "" if flags & socket.NI_NUMERICSERV else _SERVICE_NAMES.get(port, "")
        if flags & socket.NI_DGRAM and service not in _WITH_DATAGRAMS:
            service = ""
        return (ip if flags & socket.NI_NUMERICHOST else name), service or str(port)


def _service(port: Any) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the port of a service, and the kinds of sockets that it has with their protocols."""
    text = port.decode() if isinstance(port, bytes) else port
    if not isinstance(text, str):
        return int(text or 0), _KINDS
    if text.isdecimal():
        return int(text), _KINDS
    if text not in _SERVICES:
        raise socket.gaierror(*_NO_SERVICE)
    return _SERVICES[text], _KINDS[: 2 if text in _WITH_DATAGRAMS else 1]
