"""A file system that passes a folder on, waits at each read and write, and has no hard links if told so.

``slow_files FOLDER MOUNT SECONDS [--without-links]``
"""

import errno
import os
import sys
import time
from pathlib import Path

from mfusepy import FUSE, FuseOSError, Operations

_STAT = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size")
_TIMES = ("st_atime", "st_mtime", "st_ctime")


class SlowFiles(Operations):
    """The files of a folder."""

    use_ns = True

    def __init__(self, folder, seconds, links):
        self._folder = folder
        self._seconds = seconds
        self._links = links

    def _at(self, path):
        return Path(self._folder + path)

    def getattr(self, path, fh=None):
        """Return what stat says."""
        found = self._at(path).lstat()
        times = {name: getattr(found, f"{name}_ns") for name in _TIMES}
        return {name: getattr(found, name) for name in _STAT} | times

    def statfs(self, path):
        """Return the room."""
        found = os.statvfs(self._at(path))
        return {name: getattr(found, name) for name in dir(found) if name.startswith("f_")}

    def readdir(self, path, fh):
        """Return the names in a folder."""
        return [".", "..", *(one.name for one in self._at(path).iterdir())]

    def mkdir(self, path, mode):
        """Make a folder."""
        self._at(path).mkdir(mode)

    def rmdir(self, path):
        """Remove a folder."""
        self._at(path).rmdir()

    def unlink(self, path):
        """Remove a file."""
        self._at(path).unlink()

    def rename(self, old, new):
        """Rename a file."""
        self._at(old).rename(self._at(new))

    def link(self, target, source):
        """Give a file another name."""
        if not self._links:
            raise FuseOSError(errno.EPERM)
        self._at(target).hardlink_to(self._at(source))

    def chmod(self, path, mode):
        """Change rights."""
        self._at(path).chmod(mode)

    def chown(self, path, uid, gid):
        """Change the owner."""
        os.chown(self._at(path), uid, gid)

    def utimens(self, path, times=None):
        """Leave times as they are."""

    def create(self, path, mode, fi=None):
        """Make a file."""
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def open(self, path, flags):
        """Open a file."""
        return os.open(self._at(path), flags & ~os.O_APPEND)

    def truncate(self, path, length, fh=None):
        """Cut a file."""
        os.truncate(self._at(path), length)

    def read(self, path, size, offset, fh):
        """Read, slowly."""
        time.sleep(self._seconds)
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        """Write, slowly."""
        time.sleep(self._seconds)
        return os.pwrite(fh, data, offset)

    def flush(self, path, fh):
        """Have nothing to write out."""

    def fsync(self, path, datasync, fh):
        """Have nothing to write out."""

    def release(self, path, fh):
        """Close a file."""
        os.close(fh)


if __name__ == "__main__":
    files = SlowFiles(sys.argv[1], float(sys.argv[3]), "--without-links" not in sys.argv)
    FUSE(files, sys.argv[2], foreground=True)
