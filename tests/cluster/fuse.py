#!/usr/bin/env python3
"""fuse.py MOUNTPOINT RIGHT OTHER: a file system of uid 2002 which says that all is root's, as fusermount(1)
makes one where /etc/fuse.conf has user_allow_other.

Its files are agents, and all whose names have a dot.  The first reader gets the bytes of the file RIGHT, all
others those of OTHER: what is checked is not what runs.  It prints "ready", and ends with its mount.
"""
import ctypes
import os
import struct
import sys

EVIL = 2002
LOOKUP, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = (
    1, 3, 14, 15, 17, 18, 25, 26, 27, 28, 29)
FORGET, BATCH_FORGET, ACCESS = 2, 42, 34
ENTRY = struct.Struct("<QQQQII")
FOLDERS = b"b bin share lib python berth as_horovod horovod".split()
nodes = {(0, b""): 1}  # (parent, name): number
files = set()  # numbers


def find(parent, name):
    """Its number, or 0."""
    is_file = b"agent-" in name or name == b"berth-agent" or b"." in name
    if not is_file and name not in FOLDERS:
        return 0
    node = nodes.setdefault((parent, name), len(nodes) + 1)
    if is_file:
        files.add(node)
    return node


def attributes(node, size):
    mode, links = (0o100755, 1) if node in files else (0o40700, 2)
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, 1, 1000, 1000, 1000, 0, 0, 0, mode, links, 0, 0, 0,
                       4096, 0)


def serve(fd, right, other):
    size, opened = max(len(right), len(other)), 0
    while True:
        try:
            asked = os.read(fd, 1 << 17)
        except OSError:
            return  # unmounted
        _, what, number, node = struct.unpack("<IIQQ", asked[:24])
        body, error, out = asked[40:], 0, b""
        if what in (FORGET, BATCH_FORGET):
            continue
        if what == INIT:
            out = struct.pack("<IIIIHHIIHHI", 7, 31, 65536, 0, 16, 12, 65536, 1, 16, 0, 0) + bytes(24)
        elif what == LOOKUP:
            found = find(node, body.rstrip(b"\0"))
            out = ENTRY.pack(found, 0, 1, 1, 0, 0) + attributes(found, size) if found else b""
            error = 0 if found else -2
        elif what == GETATTR:
            out = struct.pack("<QII", 1, 0, 0) + attributes(node, size)
        elif what in (OPEN, OPENDIR):
            opened += what == OPEN
            out = struct.pack("<QII", opened, 1, 0)  # its pages are not kept
        elif what == READ:
            handle, at, n = struct.unpack("<QQI", body[:20])
            out = (right if handle == 1 else other)[at:at + n]
        elif what == STATFS:
            out = struct.pack("<QQQQQIIII", 1000, 500, 500, 10, 10, 4096, 255, 4096, 0) + bytes(24)
        elif what not in (RELEASE, FLUSH, RELEASEDIR, READDIR, ACCESS):
            error = -38
        try:
            os.write(fd, struct.pack("<IiQ", 16 + len(out), error, number) + out)
        except OSError:
            pass  # nobody waits for it any more


def main():
    folder, right, other = sys.argv[1:]
    contents = [open(path, "rb").read() for path in (right, other)]
    fd = os.open("/dev/fuse", os.O_RDWR)
    how = f"fd={fd},rootmode=40000,user_id={EVIL},group_id={EVIL},allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"fuse", folder.encode(), b"fuse", 6, how.encode()):  # nosuid, nodev
        sys.exit(os.strerror(ctypes.get_errno()))
    os.setgid(EVIL)
    os.setuid(EVIL)
    print("ready", flush=True)
    serve(fd, *contents)


main()
