"""A POST for each transition: JSON, tried again, with a key by which the receiver knows one it has already."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from clustertop import __version__
from clustertop.out.outlet import FIRST_WAIT_SECONDS, DeliveryError, Outlet
from clustertop.plain import transition_object

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from clustertop.model import Severity, Transition


class Webhook(Outlet):
    """Posts to one address.

    Args:
        url: gives the address when it is needed: it may hold a token, so it is never shown, logged or kept. Raises an
            exception with one sentence where it cannot be had.
        least: transitions milder than this are not posted.
        timeout_seconds: over the whole request.
        wait_seconds: before the second try.
    """

    def __init__(
        self, url: Callable[[], str], least: Severity, timeout_seconds: float,
        wait_seconds: float = FIRST_WAIT_SECONDS,
    ) -> None:
        super().__init__("webhook", least, wait_seconds)
        self._url, self._timeout = url, timeout_seconds
        self._client: httpx.AsyncClient | None = None

    async def deliver(self, change: Transition) -> None:
        """Post it. Raises DeliveryError: no answer in time, or one that is no success."""
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=self._timeout, follow_redirects=False, headers={"User-Agent": f"clustertop/{__version__}"})
        body = json.dumps(transition_object(change), allow_nan=False).encode()
        key = hashlib.blake2s(f"{change.alert} {change.kind} {change.wall!r}".encode(), digest_size=16).hexdigest()
        try:
            url = self._url()
            answer = await self._client.post(
                url, content=body, headers={"Content-Type": "application/json", "Idempotency-Key": key})
        except httpx.TimeoutException:
            raise DeliveryError(f"no answer within {self._timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # Their text may name the address, and with it a token.
            raise DeliveryError(type(error).__name__) from None
        except (OSError, ValueError, RuntimeError) as error:
            raise DeliveryError(str(error)) from None
        if not answer.is_success:
            lasting = answer.is_client_error and answer.status_code not in {408, 425, 429}
            raise DeliveryError(f"answered {answer.status_code}", final=lasting)

    async def close(self) -> None:
        """Let what waits go, then close the connection."""
        await super().close()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
