"""A rank of berth.run(): the function comes from standard input, and what it returned goes to standard
output, on lines that begin with a mark and the rank.
"""
from __future__ import annotations

import base64
import os
import pickle
import sys
import traceback

try:
    import cloudpickle as pickler
except ImportError:
    pickler = pickle

PART_BYTES = 2400  # their lines stay below 4096 bytes, so that each write is whole


def main() -> int:
    """Call the function that standard input brings.  The status to exit with."""
    mark, search = pickle.load(sys.stdin.buffer)
    sys.path.extend(path for path in search if path not in sys.path)
    status = 0
    try:
        func, args, kwargs = pickle.load(sys.stdin.buffer)
        end = pickler.dumps((False, func(*args, **kwargs)))
    except BaseException:
        text = traceback.format_exc()
        sys.stderr.write(text)
        end, status = pickle.dumps((True, text)), 1
    sys.stdout.flush()
    for at in range(0, len(end), PART_BYTES):
        part = base64.b64encode(end[at:at + PART_BYTES]).decode()
        os.write(1, f"{mark} {os.environ['BERTH_RANK']} {part}\n".encode())
    return status


if __name__ == "__main__":
    sys.exit(main())
