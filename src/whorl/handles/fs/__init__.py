"""The file system (libuv: ``uv_fs_…``): a table of contents.

Every function takes the loop first. With a `callback` it begins the operation and returns a request, and the
loop calls `callback(request, result, error)` at the end. Without a callback it does the operation at once,
and returns the result or raises OSError.
"""

from __future__ import annotations

from whorl.core.file_system_status import FileSystemStatus
from whorl.handles.fs.copy import COPYFILE_EXCL, COPYFILE_FICLONE, COPYFILE_FICLONE_FORCE
from whorl.handles.fs.directories import Dir, Dirent, DirentType, closedir, opendir, readdir, scandir
from whorl.handles.fs.files import (
    close,
    fchmod,
    fchown,
    fdatasync,
    fstat,
    fsync,
    ftruncate,
    futime,
    open,  # noqa: A004
    read,
    read_into,
    sendfile,
    write,
)
from whorl.handles.fs.names import (
    access,
    chmod,
    chown,
    copyfile,
    lchown,
    link,
    lstat,
    lutime,
    mkdir,
    mkdtemp,
    mkstemp,
    readlink,
    realpath,
    rename,
    rmdir,
    stat,
    statfs,
    symlink,
    unlink,
    utime,
)
from whorl.handles.fs.request import FsRequest

__all__ = [
    "COPYFILE_EXCL",
    "COPYFILE_FICLONE",
    "COPYFILE_FICLONE_FORCE",
    "Dir",
    "Dirent",
    "DirentType",
    "FileSystemStatus",
    "FsRequest",
    "access",
    "chmod",
    "chown",
    "close",
    "closedir",
    "copyfile",
    "fchmod",
    "fchown",
    "fdatasync",
    "fstat",
    "fsync",
    "ftruncate",
    "futime",
    "lchown",
    "link",
    "lstat",
    "lutime",
    "mkdir",
    "mkdtemp",
    "mkstemp",
    "open",
    "opendir",
    "read",
    "read_into",
    "readdir",
    "readlink",
    "realpath",
    "rename",
    "rmdir",
    "scandir",
    "sendfile",
    "stat",
    "statfs",
    "symlink",
    "unlink",
    "utime",
    "write",
]
