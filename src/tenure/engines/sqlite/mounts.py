"""File systems that other machines share: SQLite's locks and its shared memory do not reach there.

Several machines on one such file corrupt it, and even one machine can, as the write-ahead log needs
memory that all its users share.
"""

from __future__ import annotations

import os
import re

MOUNTS = "/proc/self/mountinfo"

NETWORK = frozenset(
    """nfs nfs4 cifs smb3 smbfs smb2 afs ceph coda glusterfs lustre gpfs beegfs orangefs pvfs2 ocfs2
    gfs2 ncpfs davfs fuse.sshfs fuse.glusterfs fuse.ceph fuse.cephfs fuse.s3fs fuse.gcsfuse
    fuse.rclone fuse.goofys fuse.blobfuse fuse.blobfuse2 fuse.davfs fuse.davfs2 fuse.curlftpfs
    fuse.smbnetfs fuse.juicefs fuse.seaweedfs fuse.moosefs fuse.mfs fuse.lizardfs fuse.beegfs
    fuse.mount-s3 fuse.afp""".split()
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def network_file_system(folder: str) -> str | None:
    """The type of the network file system that a folder lies on; None if it is not known to be.

    Known on Linux only.
    """
    found = file_system(folder)
    return found if found in NETWORK else None


def file_system(folder: str) -> str | None:
    """The type of the file system that a folder lies on, where that can be told."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            lines = mounts.readlines()
    except OSError:
        return None
    folder = os.path.realpath(folder)
    best, kind = "", None
    for line in lines:
        point, found = _parse(line)
        # Of two mounts on one place the later one hides the other.
        if found and len(point) >= len(best) and _holds(point, folder):
            best, kind = point, found
    return kind


def _parse(line: str) -> tuple[str, str | None]:
    """Where a mount is, and of which type it is."""
    before, _, after = line.partition(" - ")
    fields = before.split(" ")
    if len(fields) < 5 or not after:
        return "", None
    point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
    return point, after.split(" ")[0]


def _holds(point: str, folder: str) -> bool:
    return folder == point or folder.startswith(point.rstrip("/") + "/")
