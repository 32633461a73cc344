"""The ways out for alerts that a configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.model import Severity
from clustertop.out.hook import Hook
from clustertop.out.log import TransitionLog
from clustertop.out.webhook import Webhook
from clustertop.sources.secret import Secret, SecretError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from clustertop.config import Loaded
    from clustertop.plan import Way


def outlets(loaded: Loaded, state: Path | None) -> Callable[[], Sequence[Way]]:
    """Return what makes the ways out for alerts that the configuration names.

    Args:
        loaded: the configuration.
        state: the session's state file; the log lies beside it where the configuration names none.

    Raises:
        ConfigError: the webhook's address is none, or where it comes from cannot be read.
    """
    notify = loaded.config.notify
    url = _webhook(loaded) if notify.webhook else None

    def make() -> Sequence[Way]:
        ways: list[Way] = []
        log = loaded.beside(notify.log) if notify.log else state and state.with_name(f"{state.stem}-log.ndjson")
        if log and notify.log != "none":
            ways.append(TransitionLog(log, int(notify.log_megabytes * 1e6), notify.log_keep))
        least = Severity[notify.least.upper()]
        if notify.hook:
            ways.append(Hook(notify.hook, least, notify.hook_timeout_seconds))
        if url is not None:
            ways.append(Webhook(url, least, notify.webhook_timeout_seconds))
        return ways

    return make


def _webhook(loaded: Loaded) -> Callable[[], str]:
    said = loaded.config.notify.webhook
    if said.startswith(("https://", "http://")):
        return lambda: said
    try:
        secret = Secret.from_spec(said)
        secret.check()
    except SecretError as error:
        raise loaded.error("notify.webhook", f'{error}; or write the address itself, "https://..."') from None
    return secret.reveal
