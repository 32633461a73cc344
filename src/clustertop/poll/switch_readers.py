"""Switches and the fabric as their tasks see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.sources.fabric import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.sources.fabric import Runner
    from clustertop.wire.ssh.run import SshRunner


def over_ssh(runner: SshRunner) -> Runner:
    """What runs the fabric's tools on the host that *runner* reaches."""

    async def run(argv: Sequence[str], seconds: float) -> Output:
        ran = await runner.run(argv, seconds)
        out, err = (text.decode("utf-8", "backslashreplace") for text in (ran.out, ran.err))
        return Output(out, err, ran.status, ran.cut, ran.why)

    return run
