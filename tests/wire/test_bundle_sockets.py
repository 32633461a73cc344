"""How often TCP connections are read, from the configuration to the probe."""

from __future__ import annotations

import pytest

from clustertop.config import Config
from clustertop.config_site import Sockets
from clustertop.probe import loop
from clustertop.settings import poll_settings
from clustertop.wire.bundle import probe_args
from clustertop.wire.transport import PollSettings


@pytest.mark.parametrize(("poll", "sockets", "expected"), [(2.0, 10.0, 10.0), (30.0, 10.0, 30.0), (1.0, 2.0, 2.0)])
def test_their_interval_and_never_more_often_than_the_node(poll: float, sockets: float, expected: float) -> None:
    args = probe_args(PollSettings(interval_seconds=poll, sockets_interval_seconds=sockets), "n")
    assert args["every"]["sockets"] == expected  # type: ignore[index]
    assert "without" not in args


def test_they_are_not_read_where_the_configuration_says_so() -> None:
    assert poll_settings(Config()).sockets_interval_seconds == 10.0
    settings = poll_settings(Config(sockets=Sockets(enabled=False)))
    assert settings.sockets_interval_seconds is None
    args = probe_args(settings, "n")
    assert "sockets" not in args["every"]  # type: ignore[operator]
    names = [runner.name for runner in loop.Probe(args)._runners]
    assert names == [name for name in loop.GROUPS if name != "sockets" and name not in loop.ON_REQUEST]
