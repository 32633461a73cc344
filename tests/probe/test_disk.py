"""Local file systems: which are asked, which are never asked, and what they say."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from clustertop.probe import disk
from clustertop.probe.files import Call, Tree
from clustertop.probe.frames import Err

if TYPE_CHECKING:
    from pathlib import Path

NODE = """\
/dev/md0 / ext4 rw,relatime 0 0
devtmpfs /dev devtmpfs rw,nosuid 0 0
tmpfs /dev/shm tmpfs rw,nosuid 0 0
tmpfs /run tmpfs rw,nosuid 0 0
tmpfs /run/user/1000 tmpfs rw 0 0
proc /proc proc rw 0 0
/dev/md1 /var xfs rw 0 0
/dev/md1 /var/lib/docker xfs rw 0 0
/dev/nvme9n1 /scratch xfs rw,noatime 0 0
/dev/nvme9n1 /var/lib/kubelet/pods/1/v xfs rw 0 0
tmpfs /var/lib/kubelet/pods/2/secret tmpfs rw 0 0
overlay /var/lib/docker/overlay2/ab/merged overlay rw,upperdir=/x 0 0
10.0.0.9:/home /home nfs4 rw,hard 0 0
/dev/sdz1 /home/local ext4 rw 0 0
mds@tcp:/fs /lustre lustre rw 0 0
auto.x /misc autofs rw 0 0
/dev/sdy1 /misc/disk ext4 rw 0 0
someone /mnt/s fuse.sshfs rw 0 0
/dev/loop3 /snap/core/1 squashfs ro 0 0
/dev/sdx1 /data\\040one ext4 ro,relatime 0 0
gpfs0 /gpfs gpfs rw 0 0
broken
"""


def places(text: str) -> list[str]:
    return [mount.place for mount in disk.chosen(disk.parse(text.encode()))]


def test_local_ones_once_each_and_nothing_behind_a_server() -> None:
    """A dead server hangs whoever asks, or only walks past: /home/local is on a disk, but below /home."""
    assert places(NODE) == ["/", "/data one", "/dev/shm", "/run", "/scratch", "/var"]
    # A mount that lies over another counts, not the one below it.
    assert places("/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /data xfs rw 0 0\nserver:/d /data nfs rw 0 0") == ["/"]


def test_the_root_of_a_node_without_disks() -> None:
    assert places("overlay / overlay rw,lowerdir=/ro,upperdir=/rw/up,workdir=/rw/w 0 0\ntmpfs /tmp tmpfs rw 0 0") == [
        "/", "/tmp"]  # fmt: skip
    assert places("server:/images/node / nfs ro 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/nvme0n1 /local xfs rw 0 0") == []
    assert places("overlay / overlay ro,lowerdir=/a:/b 0 0") == []


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "fuse", "fuse.s3fs",
                                  "glusterfs", "9p", "afs", "orangefs", "pvfs2", "wekafs", "daos", "proc", "autofs"])  # fmt: skip
def test_what_may_wait_for_somebody_is_never_asked(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    real = os.statvfs
    monkeypatch.setattr(disk.os, "statvfs", lambda path: asked.append(str(path)) or real("/"))
    mounts = tmp_path / "proc/self/mounts"
    mounts.parent.mkdir(parents=True)
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nx /far {kind} rw 0 0\n/dev/sdb1 /far/disk ext4 rw 0 0\n")
    disk.Disks(Tree(str(tmp_path), Call())).read(0.0)
    assert asked == [f"{tmp_path}/"]


def cells(reading: Any) -> dict[str, dict[str, Any]]:
    table = reading.tables["disk"]
    return {key: {column: table.cells[place * len(table.rows) + row] for place, column in enumerate(table.columns)}
            for row, (key, _) in enumerate(table.rows)}


def test_this_machine_as_the_kernel_says_it() -> None:
    reading = disk.Disks(Tree("/", Call())).read(0.0)
    got = cells(reading)
    assert got, "a machine without a local file system"
    for place, values in got.items():
        total = shutil.disk_usage(place).total
        assert values["size"] == total
        assert 0 <= values["available"] <= values["free"] <= values["size"]
    assert all(attrs["type"] in disk._LOCAL | disk._MEMORY | {"overlay"} for _, attrs in reading.tables["disk"].rows)


def test_one_that_fails_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "proc/self/mounts"
    mounts.parent.mkdir(parents=True)
    mounts.write_text("/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /scratch xfs ro 0 0\n")
    reader = disk.Disks(Tree(str(tmp_path), Call()))
    got = cells(reader.read(0.0))
    assert got["/scratch"] == dict.fromkeys(("size", "free", "available", "inodes", "inodes_free"), Err("ENOENT"))
    assert isinstance(got["/"]["size"], int)
    assert dict(reader.read(1.0).tables["disk"].rows)["/scratch"]["read_only"] is True
    mounts.unlink()
    mounts.mkdir()
    lost = reader.read(2.0)
    assert [key for key, _ in lost.tables["disk"].rows] == ["/", "/scratch"]
    assert lost.tables["disk"].error.startswith("EISDIR")
    assert set(lost.tables["disk"].cells) == {Err("EISDIR")}


def test_without_proc_there_is_nothing_of_the_kind(tmp_path: Path) -> None:
    assert disk.Disks(Tree(str(tmp_path), Call())).read(0.0).st == "off"


def test_btrfs_has_no_number_of_inodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "proc/self/mounts"
    mounts.parent.mkdir(parents=True)
    mounts.write_text("/dev/sda1 / btrfs rw 0 0\n")
    monkeypatch.setattr(disk.os, "statvfs", lambda path: os.statvfs_result((4096, 4096, 1000, 500, 400, 0, 0, 0, 0, 255)))
    assert cells(disk.Disks(Tree(str(tmp_path), Call())).read(0.0))["/"] == {
        "size": 4096000, "free": 2048000, "available": 1638400, "inodes": Err("Not Supported"),
        "inodes_free": Err("Not Supported"),
    }
