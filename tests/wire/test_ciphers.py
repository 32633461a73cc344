"""Which cipher a connection takes: the cheap one, unless the operator's configuration says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clustertop.wire.ssh.dial import Dialer
from sshd import running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.sshd


@pytest.mark.parametrize(("lines", "cipher"), [
    ("", "aes128-gcm@openssh.com"),
    ("  Ciphers chacha20-poly1305@openssh.com\n", "chacha20-poly1305@openssh.com"),
    ("  Ciphers ^aes256-ctr\n", "aes256-ctr"),
])
async def test_aes_gcm_comes_first_unless_the_operator_says_otherwise(tmp_path: Path, lines: str, cipher: str) -> None:
    with running(tmp_path) as sshd:
        with (tmp_path / "ssh_config").open("a", encoding="utf-8") as config:
            config.write(lines)
        dialer = Dialer(sshd.settings())
        conn, _ = await dialer.dial("127.0.0.1", sshd.node().user, sshd.port)
        try:
            assert conn.get_extra_info("send_cipher") == cipher
            assert conn.get_extra_info("recv_cipher") == cipher
        finally:
            conn.abort()
            await conn.wait_closed()
            await dialer.close()


async def test_a_server_that_has_only_chacha_is_still_reached(tmp_path: Path) -> None:
    with running(tmp_path, "Ciphers chacha20-poly1305@openssh.com") as sshd:
        dialer = Dialer(sshd.settings())
        conn, _ = await dialer.dial("127.0.0.1", sshd.node().user, sshd.port)
        try:
            assert conn.get_extra_info("recv_cipher") == "chacha20-poly1305@openssh.com"
        finally:
            conn.abort()
            await conn.wait_closed()
            await dialer.close()
