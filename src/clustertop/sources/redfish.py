"""One BMC, power shelf or PDU over Redfish: what there is is found seldom, what the power is now at each poll."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from clustertop.clock import SystemClock
from clustertop.sources import redfish_read
from clustertop.sources.bmc_reading import BmcReading, BmcState, unknown
from clustertop.sources.care import BmcFailure
from clustertop.sources.redfish_http import Http, HttpLimits
from clustertop.sources.redfish_map import ROOT, Tier, expandable, follow, is_collection, kind, local_path, members
from clustertop.sources.redfish_session import Session
from clustertop.sources.redfish_value import plain_number
from clustertop.sources.tls import Tls
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.clock import Clock
    from clustertop.sources.redfish_http import Answer
    from clustertop.sources.secret import Secret

EXPAND = "?$expand=.($levels=1)"


@dataclass(frozen=True, slots=True)
class RedfishTarget:
    """Where a service is and how we log in."""

    url: str
    user: str
    password: Secret
    basic: bool = False
    """Send the password with each request instead of holding a session."""
    tls: Tls = field(default_factory=Tls)


@dataclass(frozen=True, slots=True)
class RedfishSettings:
    """How much of a service is read, and how often."""

    http: HttpLimits = field(default_factory=HttpLimits)
    static_seconds: float = 900.0
    """How long what there is (chassis, supplies, ratings) is taken as unchanged."""
    detail_seconds: float = 300.0
    """How old sensors, outlets and temperatures may be while they are not on screen."""
    read_seconds: float = 120.0
    """How long one poll may take in all."""
    most_requests: int = 256
    """In one poll."""
    most_bytes: int = 32 << 20
    """In one poll."""
    most_depth: int = 8


@dataclass(slots=True)
class _Entry:
    """A resource as it was last read."""

    body: dict[str, Any]
    at: float
    etag: str = ""
    only_links: bool = False
    """A collection that holds links alone: it says what there is, never what is now."""
    kind: str = ""
    links: tuple[tuple[str, Tier], ...] = ()
    """What is worth reading below it."""


@dataclass(slots=True)
class _Walk:
    """One poll."""

    detail: bool
    taken_at: float
    tree: dict[str, object] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    requests: int = 0
    bytes: int = 0
    fresh: int = 0
    """Live resources read in this poll."""
    detail_at: float | None = None
    renewed: bool = False
    cut: str = ""


class Redfish:
    """A :class:`~clustertop.sources.care.Source` over Redfish."""

    def __init__(
        self, target: RedfishTarget, settings: RedfishSettings | None = None, clock: Clock | None = None
    ) -> None:
        self._settings = settings or RedfishSettings()
        self._clock = clock or SystemClock()
        self._http = Http(target.url, target.tls, self._settings.http)
        self._session = Session(self._http, target.user, target.password, basic=target.basic)
        self._entries: dict[str, _Entry] = {}
        self._gone: dict[str, float] = {}
        self._expand = False
        self._memo: redfish_read.Memo = {}
        self._meter = ""
        self._notes = ("the certificate is not checked",) if target.tls.insecure and not target.tls.fingerprint else ()

    @property
    def requests(self) -> int:
        """HTTP requests sent so far."""
        return self._http.requests

    async def read(self, *, detail: bool) -> BmcReading:
        """Read what is due. Raises BmcFailure."""
        walk = _Walk(detail, self._clock.monotonic())
        try:
            await self._bounded_walk(walk)
        except BmcFailure as failure:
            if not walk.fresh or failure.state in {BmcState.AUTH_FAILED, BmcState.MAX_SESSIONS, BmcState.TLS_FAILED}:
                if failure.state not in {BmcState.BUSY, BmcState.NOT_ANSWERING}:
                    await self._session.leave()  # the next attempt may be long off; a slot is not held for it
                raise
            walk.cut = f"stopped early: {failure.words}"  # what came before it is as good as ever
        reading = self._same_meter(walk, redfish_read.read(walk.tree, taken_at=walk.taken_at, memo=self._memo))
        return replace(reading, detail_at=walk.detail_at, notes=(*self._notes, *self._said(walk)))

    def _same_meter(self, walk: _Walk, reading: BmcReading) -> BmcReading:
        """Where something could not be read, the next best meter may be that of a part: then the whole is unknown."""
        source = reading.watts_source
        if not reading.watts.known:
            return reading
        if not self._meter or not (walk.failed or walk.cut):
            self._meter = source
        elif source != self._meter and not source.startswith("sum "):
            return replace(reading, watts=unknown("its meter could not be read"), watts_source="")
        return reading

    async def slow(self, seconds: float) -> Mapping[str, Any]:
        """Nothing here takes long."""
        return {}

    async def aclose(self) -> None:
        """Delete the session and close the connection."""
        try:
            await self._session.aclose()
        finally:
            await self._http.aclose()

    async def _bounded_walk(self, walk: _Walk) -> None:
        limit = self._settings.read_seconds
        try:
            async with asyncio.timeout(limit):
                await self._walk(walk)
        except TimeoutError:
            raise BmcFailure(BmcState.NOT_ANSWERING, f"not read within {limit:g} s") from None

    async def _walk(self, walk: _Walk) -> None:
        # Live figures first: should the poll be cut short, they are there.
        live: deque[tuple[str, Tier, int]] = deque()
        rest: deque[tuple[str, Tier, int]] = deque([(ROOT, Tier.STATIC, 0)])
        seen = {ROOT.rstrip("/")}
        while live or rest:
            path, tier, depth = (live or rest).popleft()
            body = await self._body(walk, path, tier)
            if body is None:
                continue
            walk.tree[path] = body
            if depth == 0:
                self._learn_root(body)
            elif self._entries[path].kind == "SessionService":
                said = plain_number(body.get("SessionTimeout"))
                self._session.timeout_seconds = said or self._session.timeout_seconds
            if depth >= self._settings.most_depth:
                continue
            for below, its in self._entries[path].links:
                # What hangs below something seldom read is not read more often than that.
                worth = max(its, tier) if tier is Tier.DETAIL else its
                if below.rstrip("/") not in seen:
                    seen.add(below.rstrip("/"))
                    (live if worth is Tier.LIVE else rest).append((below, worth, depth + 1))

    def _learn_root(self, root: Mapping[str, Any]) -> None:
        self._expand = expandable(root)
        links = root.get("Links")
        place = local_path(links.get("Sessions")) if isinstance(links, dict) else ""
        self._session.address = place or self._session.address

    async def _body(self, walk: _Walk, path: str, tier: Tier) -> dict[str, Any] | None:
        """The resource, from memory where that is young enough; None where it cannot be had."""
        entry = self._entries.get(path)
        now = self._clock.monotonic()
        if entry is not None and entry.only_links:
            tier = Tier.STATIC
        if entry is None and path in self._gone and now - self._gone[path] < self._settings.static_seconds:
            return None
        if entry is not None and now - entry.at < self._young(walk, tier):
            self._aged(walk, tier, entry.at)
            return entry.body
        if walk.requests >= self._settings.most_requests or walk.bytes >= self._settings.most_bytes:
            walk.cut = f"not all resources were read: the limit is {self._settings.most_requests} requests a poll"
            return entry.body if entry is not None and tier is Tier.STATIC else None
        body = await self._fetch(walk, path, tier, entry)
        if body is not None:
            self._aged(walk, tier, self._entries[path].at)
            walk.fresh += tier is Tier.LIVE
        return body

    def _young(self, walk: _Walk, tier: Tier) -> float:
        if tier is Tier.LIVE or (tier is Tier.DETAIL and walk.detail):
            return 0.0
        return self._settings.detail_seconds if tier is Tier.DETAIL else self._settings.static_seconds

    @staticmethod
    def _aged(walk: _Walk, tier: Tier, at: float) -> None:
        if tier is Tier.DETAIL:
            walk.detail_at = at if walk.detail_at is None else min(walk.detail_at, at)

    async def _fetch(self, walk: _Walk, path: str, tier: Tier, entry: _Entry | None) -> dict[str, Any] | None:
        at = self._clock.monotonic()
        # Some firmware makes its ETag of the configuration only: what is live is never asked for conditionally.
        headers = {"If-None-Match": entry.etag} if entry is not None and entry.etag and tier is not Tier.LIVE else {}
        answer = await self._get(walk, path, headers)
        if answer.status == 304 and entry is not None:
            entry.at = at
            return entry.body
        if answer.status == 200:
            try:
                body = answer.json()
            except ValueError as error:
                return self._lost(walk, path, tier, str(error))
            listed = list(members(body))
            only_links = bool(listed) and not any(inlined for _, inlined in listed)
            self._entries[path] = _Entry(body, at, answer.headers.get("etag", "")[:256], only_links, kind(path, body),
                                         tuple(follow(path, body)))
            self._gone.pop(path, None)
            return body
        if answer.status in {503, 429}:
            raise BmcFailure(BmcState.BUSY, f"HTTP {answer.status}", wait_seconds=answer.retry_after)
        if answer.status == 401 and not self._session.is_open and len(walk.tree) <= 1:
            self._session.refused()
            raise BmcFailure(BmcState.AUTH_FAILED, "user or password refused")
        if answer.status in {401, 403}:
            return self._forbidden(walk, path, tier, at, answer.status)
        if answer.status in {404, 405, 410}:
            self._gone[path] = at
            self._entries.pop(path, None)
            if path == ROOT:
                raise BmcFailure(BmcState.BAD_ANSWER, "there is no Redfish service")
            return None
        return self._lost(walk, path, tier, f"HTTP {answer.status}")

    def _forbidden(self, walk: _Walk, path: str, tier: Tier, at: float, status: int) -> dict[str, Any] | None:
        """A resource that our login does not open; it is not asked again soon, or each poll would cost a login."""
        if path.rstrip("/").count("/") <= 3:
            raise BmcFailure(BmcState.FORBIDDEN, f"{clean(path)}: HTTP {status}")
        self._gone[path] = at
        return self._lost(walk, path, tier, f"no permission ({status})")

    def _lost(self, walk: _Walk, path: str, tier: Tier, why: str) -> dict[str, Any] | None:
        """A resource that cannot be read costs only itself; what never changes is kept from before."""
        walk.failed[path] = why
        if path == ROOT and path not in self._entries:
            raise BmcFailure(BmcState.BAD_ANSWER, f"{path}: {why}")
        if tier is Tier.STATIC and path in self._entries:
            return self._entries[path].body
        self._entries.pop(path, None)
        return None

    async def _get(self, walk: _Walk, path: str, headers: Mapping[str, str]) -> Answer:
        """GET with our login; a token that is no longer taken is replaced once in a poll."""
        url = path + EXPAND if self._expand and is_collection(path) else path
        while True:
            token = {} if path == ROOT else await self._session.headers()
            auth = None if path == ROOT else await self._session.auth()
            walk.requests += 1
            answer = await self._http.request("GET", url, headers={**headers, **token}, auth=auth)
            walk.bytes += len(answer.body)
            if answer.status in {400, 501} and url != path:
                url = path  # it says that it expands, and does not
                self._expand = False
                continue
            if answer.status != 401 or walk.renewed or not self._session.is_open:
                return answer
            walk.renewed = True
            await self._session.renew()

    @staticmethod
    def _said(walk: _Walk) -> list[str]:
        notes = [walk.cut] if walk.cut else []
        reasons: dict[str, list[str]] = {}
        for path, why in walk.failed.items():
            reasons.setdefault(why, []).append(path)
        for why, paths in list(reasons.items())[:8]:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            notes.append(clean(f"{paths[0]}{more}: {why}", 200))
        return notes
