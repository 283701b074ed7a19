"""K18, B049: network file systems are refused. None can be mounted here, so a test lists them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure.engines.sqlite import SQLiteEngine, mounts
from tenure.engines.sqlite.mounts import file_system, network_file_system
from tenure.errors import ConfigurationError

pytestmark = pytest.mark.anyio


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Adds a mount to those of this system, which has only a disk at first."""
    listed = tmp_path / "mountinfo"
    lines = ["27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw"]
    monkeypatch.setattr(mounts, "MOUNTS", str(listed))

    def mount(point: object, kind: str, options: str = "shared:7 master:2") -> None:
        escaped = str(point).replace("\\", "\\134").replace(" ", "\\040")
        lines.append(f"99 27 0:{len(lines)} / {escaped} rw {options} - {kind} host:/x rw,vers=4")
        listed.write_text("\n".join(lines) + "\n")

    listed.write_text(lines[0] + "\n")
    return mount


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ceph"])
async def test_a_network_file_system_is_refused(tmp_path: Path, mount, kind: str):
    folder = tmp_path / "shared"
    (folder / "deep").mkdir(parents=True)
    mount(folder, kind)
    refused = rf"deep/jobs.db is on a network file system \({kind}\).*keep the file on a local disk"
    with pytest.raises(ConfigurationError, match=refused):
        async with SQLiteEngine(folder / "deep" / "jobs.db"):
            raise AssertionError("it opened")
    assert os.listdir(folder / "deep") == []


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "fuse.ntfs-3g", "9p"])
async def test_other_file_systems_are_taken(tmp_path: Path, mount, kind: str):
    mount(tmp_path, kind)
    async with SQLiteEngine(tmp_path / "jobs.db"):
        pass


def test_the_mount_that_counts_is_the_innermost_and_latest(tmp_path: Path, mount):
    inner, beside = tmp_path / "a b" / "c", tmp_path / "a b" / "cd"
    inner.mkdir(parents=True)
    beside.mkdir()
    assert file_system(str(inner)) == "ext4"
    mount(tmp_path / "a b", "nfs", options="")
    assert network_file_system(str(inner)) == "nfs"
    mount(inner, "xfs")
    assert file_system(str(inner)) == "xfs"
    assert file_system(str(beside)) == "nfs"
    mount(inner, "cifs")
    assert file_system(str(inner)) == "cifs"
    mount(tmp_path / "a b", "ext4")
    assert file_system(str(beside)) == "ext4"


def test_a_link_leads_to_where_the_file_is(tmp_path: Path, mount):
    (tmp_path / "shared").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    mount(tmp_path / "shared", "nfs4")
    assert network_file_system(str(tmp_path / "link")) == "nfs4"


def test_lines_that_make_no_sense_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    listed = tmp_path / "mountinfo"
    monkeypatch.setattr(mounts, "MOUNTS", str(listed))
    assert file_system("/") is None
    listed.write_bytes(b"\n1 2\nnonsense - \xff\n27 1 254:0 / / rw - ext4 /dev/vda rw\n")
    assert file_system("/") == "ext4"
