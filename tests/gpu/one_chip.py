#!/usr/bin/env python3
"""one_chip.py LIBRARY TO CHIP: libnccl.so.2 as one kind of GPU needs it, small when packed.

CHIP is a compute capability without its point: 90.  What the library has for other chips, and the
code that a linker of device code would need, become zeroes; the file keeps its size.
"""
import os
import struct
import subprocess
import sys

# A fat binary: a container has entries, each of code for one chip.
MAGIC, CUBIN, HEADER, ENTRY = 0xBA55ED50, 2, 16, 64


def sections(path):
    """{name: (offset, size)} of a library of 64 bits."""
    data = open(path, "rb").read()
    at, = struct.unpack_from("<Q", data, 0x28)
    size, n, names = struct.unpack_from("<HHH", data, 0x3A)
    rows = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(n)]
    texts = rows[names][4]
    return {data[texts + row[0]:data.index(0, texts + row[0])].decode(): (row[4], row[5]) for row in rows}


def keep_one(data, at, end, chip):
    """Zeroes the entries for other chips in the containers between AT and END.  Bytes that are kept."""
    kept = 0
    while at + HEADER <= end:
        magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
        if magic != MAGIC:
            at += 8
            continue
        entry, at = at + header, at + header + length
        while entry + ENTRY <= at:
            kind, _, skip, size = struct.unpack_from("<HHIQ", data, entry)
            if (kind, struct.unpack_from("<I", data, entry + 28)[0]) == (CUBIN, chip):
                kept += size
            else:
                data[entry + skip:entry + skip + size] = bytes(size)
            entry += skip + size
    return kept


def main():
    source, to, chip = sys.argv[1], sys.argv[2], int(sys.argv[3])
    subprocess.run(["objcopy", "--strip-debug", "--strip-unneeded", source, to], check=True)
    found = sections(to)
    with open(to, "r+b") as file:
        data = bytearray(file.read())
        if "__nv_relfatbin" in found:
            at, size = found["__nv_relfatbin"]
            data[at:at + size] = bytes(size)
        at, size = found[".nv_fatbin"]
        if not keep_one(data, at, at + size, chip):
            os.remove(to)
            sys.exit(f"{source}: it has nothing for chip {chip}")
        file.seek(0)
        file.write(data)


if __name__ == "__main__":
    main()
