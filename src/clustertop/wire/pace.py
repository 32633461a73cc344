"""Pacing of connection starts, and name lookups that can be given up."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOOKUPS_AT_ONCE = 32

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]


class Gate:
    """Lets a bounded number of connection starts through: per host, and of handshakes in all.

    A node that timed out last time goes through a slow lane of half the places, so that a rack that accepts
    connections and then says nothing cannot keep the live ones waiting.
    """

    def __init__(self, handshakes_at_once: int, per_host: int) -> None:
        self._per_host = per_host
        self._all = _Lane(handshakes_at_once)
        self._hosts: dict[str, _Lane] = {}

    @contextlib.asynccontextmanager
    async def host(self, key: str, *, slow: bool = False) -> AsyncIterator[None]:
        """Hold one of the places of the address or jump host *key*."""
        lane = self._hosts.get(key)
        if lane is None:
            lane = self._hosts[key] = _Lane(self._per_host)
        async with lane.place(slow=slow):
            yield

    @contextlib.asynccontextmanager
    async def handshake(self, *, slow: bool = False) -> AsyncIterator[None]:
        """Hold one of the places for key exchange and login."""
        async with self._all.place(slow=slow):
            yield


class _Lane:
    def __init__(self, places: int) -> None:
        self._fast = asyncio.Semaphore(places)
        self._slow = asyncio.Semaphore(max(1, places // 2))

    @contextlib.asynccontextmanager
    async def place(self, *, slow: bool) -> AsyncIterator[None]:
        if slow:
            async with self._slow, self._fast:
                yield
        else:
            async with self._fast:
                yield


class Lookup:
    """Name lookups on daemon threads.

    The resolver cannot be interrupted. On the loop's own executor a dead name server would hold up everything
    else that runs there, and the end of the program.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def find(self, host: str, port: int, family: int = 0) -> list[AddressInfo]:
        """Return the addresses of *host*, as ``socket.getaddrinfo`` gives them.

        Raises:
            OSError: the name is not known.
        """
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            return _resolve(host, port, family)  # a literal address asks no server
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[AddressInfo]] = loop.create_future()

        def deliver(result: list[AddressInfo] | None, error: OSError | None) -> None:
            self._free.release()
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            elif result is not None:
                answer.set_result(result)

        def work() -> None:
            result: list[AddressInfo] | None = None
            error: OSError | None = None
            try:
                result = _resolve(host, port, family)
            except OSError as problem:
                error = problem
            except UnicodeError:
                error = socket.gaierror(socket.EAI_NONAME, "not a host name")
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(deliver, result, error)

        await self._free.acquire()
        threading.Thread(target=work, daemon=True, name="lookup").start()
        return await answer


def _resolve(host: str, port: int, family: int) -> list[AddressInfo]:
    return list(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM))


async def connect_tcp(addresses: list[AddressInfo]) -> socket.socket:
    """Return a non-blocking socket connected to the first of *addresses* that answers.

    Raises:
        OSError: none did; the error is the last one's.
    """
    loop = asyncio.get_running_loop()
    problem = OSError("no address")
    for family, kind, proto, _, address in addresses:
        try:
            sock = socket.socket(family, kind, proto)
        except OSError as error:
            problem = error
            continue
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem
