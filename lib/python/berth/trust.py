"""Whether another user could replace a file that Berth itself chooses: as common/trust.h."""
from __future__ import annotations

import os
import stat

_OWNERS = (0, os.geteuid(), os.stat(__file__).st_uid)


def _is_private(gid: int, uid: int) -> bool:
    """GID is the group that UID alone is in."""
    import grp
    import pwd
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (gid, group.gr_name) and set(group.gr_mem) <= {user.pw_name}


def _reason(at: str) -> str | None:
    s = os.stat(at)
    if s.st_uid not in _OWNERS:
        return f"{at} belongs to another user (uid {s.st_uid})"
    if s.st_mode & stat.S_IWOTH:
        return f"{at} can be written by all users"
    if s.st_mode & stat.S_IWGRP and not any(_is_private(s.st_gid, uid) for uid in (s.st_uid, os.geteuid())):
        return f"{at} can be written by a group (gid {s.st_gid})"
    return None


def refusal(here: str, path: str) -> str | None:
    """Why PATH, which is there, is not used; or None.  HERE is where this package is: Python came by that
    way, so no folder is looked at that is above both and their nearest common one.
    """
    at = os.path.commonpath([here, path])
    reason = _reason(at)
    for part in os.path.relpath(path, at).split(os.sep):
        at = os.path.join(at, part)
        reason = reason or _reason(at)
    return reason
