"""SSH: the only importer of asyncssh."""

from __future__ import annotations

from clustertop.wire.ssh.channel import SshTransport
from clustertop.wire.ssh.dial import Dialer

__all__ = ["Dialer", "SshTransport"]
