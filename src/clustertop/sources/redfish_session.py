"""Who we are to a Redfish service: one session that is deleted on every path, or basic authentication by choice.

Controllers have few session slots (four to sixteen) and free them only after half an hour without use: one that is not
deleted locks people out. DSP0266, "Session management".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from clustertop.sources.bmc_reading import BmcState
from clustertop.sources.care import BmcFailure
from clustertop.sources.redfish_map import SESSIONS, local_path
from clustertop.sources.secret import Lent, Secret, SecretError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from clustertop.sources.redfish_http import Answer, Http

log = logging.getLogger(__name__)

LOGIN_SECONDS = 60.0
"""How long a login is waited for: given up too soon, the session that it makes is nobody's."""
DELETE_SECONDS = 4.0
CLOSE_SECONDS = 9.0
"""How long leaving may take: a DELETE with the token, and one with the password."""
DEFAULT_TIMEOUT_SECONDS = 1800.0
"""A session's inactivity timer, where the service does not say."""

# The words of DMTF's Base registry (SessionLimitExceeded), iDRAC, iLO and others, whatever status they came with.
_FULL = re.compile(
    r"session ?limit ?exceeded|maximum (?:number|limit) of .{0,20}sessions?|max(?:imum)? ?sessions"
    r"|too many .{0,12}sessions|sessions? (?:limit|maximum) .{0,20}reached|number of simultaneous sessions"
    r"|no (?:more|free) sessions?|RAC0218", re.IGNORECASE)
_REFUSED = re.compile(r"unauthorized ?login|invalid .{0,20}(?:user|credential|password)|authentication.{0,12}fail",
                      re.IGNORECASE)


class Session:
    """The login at one BMC."""

    def __init__(self, http: Http, user: str, password: Secret, *, basic: bool = False) -> None:
        self._http = http
        self._user = user
        self._password = Lent(password)
        self._basic = basic
        self._token = ""
        self._location = ""
        self._orphans: list[str] = []
        self._login: asyncio.Task[None] | None = None
        self._keep: set[asyncio.Task[Any]] = set()
        self._changing = asyncio.Lock()
        self.address = SESSIONS
        """Where sessions are made; the service root says."""
        self.timeout_seconds = DEFAULT_TIMEOUT_SECONDS
        """The service's inactivity timer."""

    @property
    def is_open(self) -> bool:
        """Whether there is something to send with a request."""
        return bool(self._token)

    async def headers(self) -> dict[str, str]:
        """The token's header, after a login where there is none yet. Raises BmcFailure."""
        if self._basic:
            return {}
        if not self._token:
            await self._shielded_login()
        return {"X-Auth-Token": self._token}

    async def auth(self) -> tuple[str, str] | None:
        """User and password for basic authentication; None with a session."""
        return (self._user, await self._reveal()) if self._basic else None

    async def renew(self) -> None:
        """The service no longer takes our token: delete that session all the same, and log in anew. Raises BmcFailure.

        The session may well still hold its slot: answers of 401 come for other reasons too.
        """
        if self._basic:
            raise BmcFailure(BmcState.AUTH_FAILED, "user or password refused")
        await self._unhurried(self._logout())
        await self._shielded_login()

    def refused(self) -> None:
        """The password was not taken: it is fetched anew for the next attempt."""
        self._password.forget()

    async def leave(self) -> None:
        """Delete the session; the next request logs in anew."""
        if self._token or self._location:
            await self._unhurried(self._logout())

    async def aclose(self) -> None:
        """Delete what is ours, within a few seconds, also where a login is still under way."""
        if self._login is not None and not self._login.done():
            await asyncio.wait({self._login}, timeout=CLOSE_SECONDS)
            self._login.cancel()
            await asyncio.wait({self._login})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._unhurried(self._logout())
        self._password.forget()
        for task in set(self._keep):
            task.cancel()
            await asyncio.wait({task})
        if self._location or self._orphans:
            log.warning("a Redfish session could not be deleted and ends with the service's own timer")

    async def _reveal(self) -> str:
        try:
            return await self._password.reveal()
        except SecretError as error:
            raise BmcFailure(BmcState.AUTH_FAILED, str(error)) from None

    async def _unhurried(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* to its end even where the caller is cancelled meanwhile."""
        task = asyncio.ensure_future(work)
        self._keep.add(task)
        task.add_done_callback(self._keep.discard)
        await asyncio.shield(task)

    async def _shielded_login(self) -> None:
        """Log in as a task of its own: a cancelled caller must not lose the answer that names the new session."""
        if self._login is None or self._login.done():
            self._login = asyncio.ensure_future(self._post())
        await asyncio.shield(self._login)

    async def _post(self) -> None:
        async with self._changing:
            await self._enter()

    async def _enter(self) -> None:
        answer = await self._http.request(
            "POST", self.address, seconds=LOGIN_SECONDS,
            json={"UserName": self._user, "Password": await self._reveal()})
        if answer.status not in {200, 201, 202, 204}:
            self._password.forget()
            raise self._refusal(answer)
        self._token = answer.headers.get("x-auth-token", "")
        self._location = self._place(answer)
        if not self._token:
            await self._leave()
            raise BmcFailure(BmcState.BAD_ANSWER, "the session service gave no token; use basic authentication")
        for orphan in list(self._orphans):
            if await self._delete(orphan, self._token):
                self._orphans.remove(orphan)

    def _place(self, answer: Answer) -> str:
        """The new session's path, from ``Location`` (a path or a URL) or from the body."""
        place = local_path(urlsplit(answer.headers.get("location", "")).path)
        if not place:
            with contextlib.suppress(ValueError):
                place = local_path(answer.json())
        return place

    async def _logout(self) -> None:
        async with self._changing:
            await self._leave()
            for orphan in list(self._orphans):
                if await self._delete(orphan, ""):
                    self._orphans.remove(orphan)

    async def _leave(self) -> None:
        """Delete the session; what cannot be deleted now is tried again later. Nobody uses the token from here on."""
        token, location, self._token, self._location = self._token, self._location, "", ""
        if location:
            self._orphans.append(location)
            if await self._delete(location, token):
                self._orphans.remove(location)

    async def _delete(self, location: str, token: str) -> bool:
        """DELETE with the token, then with the password where the token is no longer taken; False if neither worked."""
        for attempt in range(2):
            try:
                headers = {"X-Auth-Token": token} if token and attempt == 0 else {}
                auth = None if headers else (self._user, await self._reveal())
                answer = await self._http.request(
                    "DELETE", location, headers=headers, auth=auth, seconds=DELETE_SECONDS)
            except BmcFailure:
                continue
            if answer.status < 300 or answer.status in {404, 410}:
                return True
        return False

    def _refusal(self, answer: Answer) -> BmcFailure:
        """Why a login was refused. A full house is said as such: it is no wrong password."""
        words = answer.words
        if _FULL.search(words):
            return BmcFailure(
                BmcState.MAX_SESSIONS, "all session slots are taken; not tried again before the BMC can end one",
                wait_seconds=max(self.timeout_seconds, answer.retry_after))
        if answer.status in {503, 429}:
            return BmcFailure(BmcState.BUSY, f"login: HTTP {answer.status}", wait_seconds=answer.retry_after)
        if answer.status == 401 or (answer.status in {400, 403} and _REFUSED.search(words)):
            return BmcFailure(BmcState.AUTH_FAILED, "user or password refused")
        if answer.status == 403:
            return BmcFailure(BmcState.FORBIDDEN, "the user may not log in here")
        if answer.status in {404, 405, 501}:
            return BmcFailure(BmcState.BAD_ANSWER, "there is no session service; use basic authentication")
        return BmcFailure(BmcState.BAD_ANSWER, f"login: HTTP {answer.status}")
