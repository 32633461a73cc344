"""A lean asyncio SNMP client: v1, v2c and v3, GET and bounded walks. It only reads; there is no SET here.

Agents in PDUs and switches are weak. So one agent has one request at a time and one socket, each request has a deadline
of our own (timeout x (retries + 1) + 1 s, whatever the library does), a walk has a most of rows and octets, and every
failure is one sentence that names the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from clustertop.sources.oids import dotted, under
from clustertop.sources.snmp_ber import END
from clustertop.sources.snmp_message import Answer, Community, RefusedError, RestartedError, User, codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clustertop.sources.oids import Oid, Value
    from clustertop.sources.snmp_message import Asking, Codec, Kind

MAX_ROWS = 8_000
"""Most rows of one walk; the largest PDU that we know has 2,600."""
MAX_OCTETS = 1_000_000
MAX_SECONDS = 60.0
MAX_PER_GET = 24
"""Most OIDs in one GET: cheap agents answer no more than one Ethernet frame."""
MAX_ROWS_EACH = 32
"""Most rows in one answer to a GETBULK."""
_WIDE = 12
"""Most columns in one."""
_FEW = 6
"""OIDs in a GET, rows in a GETBULK, that any agent can bear."""
_TOO_BIG, _NO_SUCH_NAME, _GEN_ERR = 1, 2, 5
_NO_ACCESS = (6, 16)
_STATUS = {
    1: "the answer would be too big", 2: "no such name", 3: "bad value", 4: "read only", 5: "general error",
    6: "no access", 13: "resource unavailable", 16: "not authorised",
}


class SnmpError(Exception):
    """A request that failed; the text is one sentence that names the agent."""

    def __init__(self, agent: Agent, reason: str, *, silent: bool = False, refused: bool = False,
                 unreachable: bool = False) -> None:
        super().__init__(f"{agent.name}: {reason}")
        self.reason = reason
        self.silent = silent
        """Nothing came back: it may be down, or the community may be wrong."""
        self.refused = refused
        """It answers, and not to us: the user, a key or the access that they have is not right."""
        self.unreachable = unreachable
        """The network says that there is no way to it, or nobody there."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An SNMP agent, who asks it, and how patiently. ``repr`` shows no secret."""

    host: str
    who: Community | User
    port: int = 161
    timeout: float = 2.0
    """Seconds until a request is sent again."""
    retries: int = 2

    @property
    def name(self) -> str:
        """``pdu-a1``, with the port where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.host if self.port == 161 else f"{host}:{self.port}"

    @property
    def deadline(self) -> float:
        """Seconds within which any request ends."""
        return self.timeout * (self.retries + 1) + 1.0


@dataclass(frozen=True, slots=True)
class Walk:
    """Rows of a subtree in the agent's order."""

    rows: dict[Oid, Value]
    cut: str = ""
    """Why it is not all; empty: it is."""


@dataclass(slots=True)
class _Column:
    """How far a walk has come below one root."""

    root: Oid
    last: Oid = ()
    ended: bool = False

    def __post_init__(self) -> None:
        # What lies behind the parent of a scalar's 0 is the scalar.
        self.last = self.root[:-1] if self.root[-1] == 0 else self.root


class Client:
    """One agent's client. Requests wait for one another; ``async with`` closes its socket."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._codec: Codec | None = None
        self._wire: _Wire | None = None
        self._lock = asyncio.Lock()
        self._rows = MAX_ROWS_EACH
        self._wide = _WIDE
        self._per_get = MAX_PER_GET
        self._lost = 0
        """Large GETs in a row that were not answered."""
        self._answered = False
        self._proven = False
        """Whether it has answered what the present codec asked."""
        self.requests = 0
        """Messages sent so far, repeats included."""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the next request opens another."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    async def get(self, names: Iterable[Oid]) -> dict[Oid, Value]:
        """Read *names*; what the agent does not have is not in the result.

        Raises:
            SnmpError: no answer, or a refusal.
        """
        rows: dict[Oid, Value] = {}
        wanted = list(dict.fromkeys(names))
        while wanted:
            part, wanted = wanted[:self._per_get], wanted[self._per_get:]
            try:
                await self._get(part, rows)
            except SnmpError as error:
                if error.silent and len(part) > _FEW:
                    # Lost twice while small requests in between were answered: from now on it is asked for less.
                    self._lost += 1
                    self._per_get = _FEW if self._lost > 1 else self._per_get
                raise
            if len(part) > _FEW:
                self._lost = 0
        return rows

    async def _get(self, names: Sequence[Oid], rows: dict[Oid, Value]) -> None:
        answer = await self._request("get", names)
        while answer.status == _NO_SUCH_NAME and 0 < answer.index <= len(names):
            # v1 refuses the whole request for one name that it does not have.
            names = [*names[:answer.index - 1], *names[answer.index:]]
            if not names:
                return
            answer = await self._request("get", names)
        if answer.status in (_TOO_BIG, _GEN_ERR) and len(names) > 1:
            half = len(names) // 2
            if answer.status == _TOO_BIG:
                self._per_get = max(1, min(self._per_get, half))
            await self._get(names[:half], rows)
            await self._get(names[half:], rows)
            return
        if answer.status in (_NO_SUCH_NAME, _GEN_ERR):
            return
        self._check(answer)
        asked = set(names)
        rows.update((name, value) for name, value in answer.rows if name in asked and value is not None)

    async def next(self, names: Sequence[Oid]) -> list[tuple[Oid, Value] | None]:
        """What lies behind each of *names*; None where the agent has nothing more. Raises SnmpError."""
        found: dict[Oid, tuple[Oid, Value]] = {}
        left = sorted(set(names))
        while left:
            part = left[:MAX_PER_GET]
            answer = await self._request("next", part)
            if answer.status == _NO_SUCH_NAME and 0 < answer.index <= len(part):
                # v1: nothing lies behind this one, so nothing behind those after it.
                left = left[:answer.index - 1]
                continue
            self._check(answer)
            found.update((asked, (name, value)) for asked, (name, value) in zip(part, answer.rows, strict=False)
                         if value is not None and value is not END)
            left = left[len(part):]
        return [found.get(name) for name in names]

    async def walk(
        self, *roots: Oid, max_rows: int = MAX_ROWS, max_octets: int = MAX_OCTETS, max_seconds: float = MAX_SECONDS,
    ) -> Walk:
        """Read everything below each of *roots*, several of them in one request, in bounds.

        A root that ends with 0 is a scalar and read itself.

        Raises:
            SnmpError: no answer, or a refusal.
        """
        columns = [_Column(root) for root in roots]
        rows: dict[Oid, Value] = {}
        octets, each, alive = 0, 2, self._answered
        ends = asyncio.get_running_loop().time() + max_seconds
        while active := [column for column in columns if not column.ended][:self._wide]:
            try:
                answer = await self._behind(active, each)
            except SnmpError as error:
                # Some agents answer a GET but drop a GETBULK whose answer would not fit their buffer.
                if error.silent and alive and self._narrow(1, _FEW):
                    alive = False
                    continue
                raise
            alive = True
            if answer.status == _TOO_BIG and self._narrow(self._wide // 2, self._rows // 2):
                continue
            octets += answer.octets
            before = len(rows)
            if answer.status == _NO_SUCH_NAME or (not answer.status and not answer.rows):
                # v1 says so where nothing lies behind one of them.
                active[max(answer.index, 1) - 1 if answer.index <= len(active) else 0].ended = True
                continue
            self._check(answer)
            for place, (name, value) in enumerate(answer.rows):
                column = active[place % len(active)]
                if column.ended:
                    continue
                if value is END or not under(name, column.root):
                    column.ended = True
                    continue
                if name <= column.last:
                    return Walk(rows, f"the agent's OIDs do not increase at {dotted(name)}")
                column.last = name
                if value is not None:
                    rows[name] = value
                if len(rows) >= max_rows:
                    return Walk(rows, f"stopped after {len(rows):,} rows")
            if octets >= max_octets:
                return Walk(rows, f"stopped after {octets:,} octets")
            if asyncio.get_running_loop().time() > ends:
                return Walk(rows, f"stopped after {max_seconds:g} s")
            # Most columns are short: few rows at first, more where all that was asked for came.
            each = 2 if len(rows) - before < each * len(active) else each * 4
        return Walk(rows)

    async def _behind(self, columns: Sequence[_Column], each: int) -> Answer:
        """What lies behind where *columns* are, *each* rows of each."""
        names = [column.last for column in columns]
        if isinstance(self.agent.who, Community) and self.agent.who.version == 1:
            return await self._request("next", names)
        return await self._request("bulk", names, max(1, min(each, self._rows // len(names))))

    def _narrow(self, wide: int, rows: int) -> bool:
        """Ask for no more than *wide* columns and *rows* at a time from now on; False where that changes nothing."""
        least = max(1, min(self._wide, wide)), max(1, min(self._rows, rows))
        if least == (self._wide, self._rows):
            return False
        self._wide, self._rows = least
        return True

    def _check(self, answer: Answer) -> None:
        if answer.status:
            raise SnmpError(self.agent, f"refused: {_STATUS.get(answer.status, f'error {answer.status}')}",
                            refused=answer.status in _NO_ACCESS)

    async def _request(self, kind: Kind, names: Sequence[Oid], repetitions: int = 0) -> Answer:
        """One request within the agent's deadline, after those that were asked for before it."""
        async with self._lock:
            try:
                async with asyncio.timeout(self.agent.deadline):
                    return await self._exchange(kind, names, repetitions)
            except TimeoutError:
                self.close()
                raise SnmpError(self.agent, self._silence(), silent=True) from None
            except RefusedError as error:
                raise SnmpError(self.agent, f"the agent {error}", refused=True) from None
            except ValueError as error:
                raise SnmpError(self.agent, str(error)) from None
            except OSError as error:
                self.close()
                raise SnmpError(self.agent, _os_reason(error), unreachable=True) from None

    async def _exchange(self, kind: Kind, names: Sequence[Oid], repetitions: int) -> Answer:
        tries = self.agent.retries + 1
        # A v3 agent that knew us and now is silent, or out of step for good, has restarted in a way that the protocol
        # does not let us follow: with another engine, or with its boots gone back. It is learnt anew, once.
        known = isinstance(self.agent.who, User) and self._proven
        first = 1 if known and tries > 1 else tries
        try:
            return await self._attempts((await self._coder()).ask(kind, names, repetitions), first)
        except RestartedError:
            self._codec = None
        except TimeoutError:
            if known:
                self._codec = None
            if first == tries:
                raise
            tries -= first
        try:
            return await self._attempts((await self._coder()).ask(kind, names, repetitions), tries)
        except RestartedError:
            raise RefusedError("keeps changing its SNMPv3 engine") from None

    async def _coder(self) -> Codec:
        if self._codec is None:
            who = self.agent.who
            # In a thread: an engine for v3 takes 80 ms. Not the shared one where this agent had it: what that one knows
            # of an agent that restarted would be in the way.
            self._codec = codec(who) if isinstance(who, Community) else await asyncio.to_thread(
                codec, who, anew=self._answered)
            self._proven = False
        return self._codec

    async def _attempts(self, asking: Asking, tries: int) -> Answer:
        """Ask, and ask again, until there is an answer. Raises TimeoutError after *tries*."""
        if self._wire is None:
            self._wire = await _Wire.open(self.agent)
        wire = self._wire
        wire.drain()
        try:
            for _ in range(tries):
                message: bytes | None = asking.message()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.agent.timeout):
                        while True:
                            if message is not None:
                                wire.send(message)
                                self.requests += 1
                            found = asking.take(await wire.receive())
                            if isinstance(found, Answer):
                                self._answered = self._proven = True
                                return found
                            message = found
            raise TimeoutError
        finally:
            asking.end()

    def _silence(self) -> str:
        tries = self.agent.retries + 1
        what = f"no answer within {self.agent.timeout:g} s, asked {tries} times" if tries > 1 else (
            f"no answer within {self.agent.timeout:g} s")
        if self._answered:
            return what
        who = "user" if isinstance(self.agent.who, User) else "community"
        return f"{what} (is it up, is SNMP on, and is the {who} right?)"


class _Wire(asyncio.DatagramProtocol):
    """A UDP socket connected to one agent: the kernel drops what others send, and tells of closed ports."""

    def __init__(self) -> None:
        self._came: asyncio.Queue[bytes | OSError] = asyncio.Queue(64)
        self._transport: asyncio.DatagramTransport | None = None

    @classmethod
    async def open(cls, agent: Agent) -> _Wire:
        """Resolve the agent's name and connect. Raises OSError."""
        _, wire = await asyncio.get_running_loop().create_datagram_endpoint(
            cls, remote_addr=(agent.host, agent.port))
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's own datagram transport is no asyncio.DatagramTransport in 3.11, so this cannot be asserted.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: object) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._came.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        if isinstance(exc, OSError):
            with contextlib.suppress(asyncio.QueueFull):
                self._came.put_nowait(exc)

    def send(self, message: bytes) -> None:
        """Send one datagram. Raises OSError."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the socket is closed")
        self._transport.sendto(message)

    async def receive(self) -> bytes:
        """The next datagram. Raises OSError for what the network reports."""
        found = await self._came.get()
        if isinstance(found, OSError):
            raise found
        return found

    def drain(self) -> None:
        """Forget what came for earlier requests."""
        while not self._came.empty():
            self._came.get_nowait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _os_reason(error: OSError) -> str:
    import socket

    if isinstance(error, socket.gaierror):
        return f"its name is not known ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens at this UDP port"
    return f"cannot be reached: {error.strerror or error}"
