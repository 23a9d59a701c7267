"""Timelines in Horovod's form: one file, of rank 0, in which each tensor is a process.

libberth writes PATH, with one row a tensor, in the form of Chrome's trace viewer; stop_timeline() writes
PATH anew from it.  Readers of Horovod's files find NEGOTIATE_X before each X.  HOROVOD_TIMELINE starts
libberth's own timelines, of all ranks.
"""
from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, Iterator, List, Tuple

from . import basics, library

_running: Tuple[str, bool, int] | None = None  # (path, whether cycles are marked, when it began)
_Event = Dict[str, Any]  # of JSON

_NEGOTIATION = ("QUEUE", "NEGOTIATE")
_PARTS = ("MEMCPY_IN_FUSION_BUFFER", "MEMCPY_OUT_FUSION_BUFFER")


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Record what rank 0 does, for FILE_PATH; stop_timeline() or shutdown() writes it.  All ranks may call
    it.  If a timeline is being recorded, it goes on.

    MARK_CYCLES: an event CYCLE_START each time that ranks agree on what is next.
    OSError: FILE_PATH cannot be written.

    >>> hvd.start_timeline("timeline.json")
    >>> _ = hvd.allgather_object("loss")
    >>> hvd.stop_timeline()
    """
    global _running
    if basics.rank() != 0 or _running:
        return
    with open(file_path, "w"):  # now, not at the end
        pass
    library.check(library.get().berth_timeline_start(os.fsencode(file_path)))
    _running = (os.fspath(file_path), mark_cycles, time.time_ns())


def stop_timeline() -> None:
    """Write the file of start_timeline().  Without one it does nothing.

    >>> hvd.stop_timeline()
    """
    basics.rank()
    if _running:
        library.check(library.get().berth_timeline_stop())
        _write()


def _write() -> None:
    """At shutdown, too: libberth has stopped by then."""
    global _running
    if not _running:
        return
    (path, mark_cycles, begun_ns), _running = _running, None
    with open(path) as f:
        events = json.load(f)
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(map(json.dumps, _converted(events, mark_cycles, begun_ns))) + "\n]\n")


def _converted(recorded: List[_Event], mark_cycles: bool, begun_ns: int) -> Iterator[_Event]:
    """The events of Horovod's file.  Times count from the first, in microseconds."""
    names = {e["tid"]: e["args"]["name"] for e in recorded if e["name"] == "thread_name"}
    parts = [e for e in recorded if e["ph"] == "X"]
    first = min((e["ts"] for e in parts), default=0)
    events: List[_Event] = []
    for row in sorted({e["tid"] for e in parts}):
        yield _meta("process_name", row + 1, {"name": names[row]})
        events += _of_tensor([e for e in parts if e["tid"] == row], row + 1, first)
    if mark_cycles:  # operations that were agreed on together end their negotiation together
        for at in sorted({e["ts"] for e in events if e.get("cat") == "agreed"}):
            events.append({"name": "CYCLE_START", "ph": "i", "s": "g", "pid": 0, "ts": at})
    yield _meta("process_name", 0, {"start_time_since_epoch_in_micros": begun_ns // 1000})
    yield _meta("process_sort_index", 0, {"sort_index": 0})
    yield from sorted(events, key=_begin)


def _meta(name: str, pid: int, args: _Event) -> _Event:
    return {"name": name, "ph": "M", "pid": pid, "args": args}


def _begin(e: _Event) -> float:
    return float(e["ts"])


def _of_tensor(parts: List[_Event], pid: int, first: float) -> Iterator[_Event]:
    """Begin and end of all that was done for one tensor.  An operation that waited for no agreement has
    a negotiation that takes no time.
    """
    waits: List[Tuple[float, float]] = []
    for e in sorted(parts, key=_begin):
        begin = round(e["ts"] - first, 3)
        end = round(begin + e["dur"], 3)
        if e["name"] in _NEGOTIATION:
            waits.append((begin, end))
            continue
        if e["name"] not in _PARTS:
            waits = waits or [(begin, begin)]
            agreed = min(max(w[1] for w in waits), begin)
            yield {"name": f"NEGOTIATE_{e['name']}", "ph": "B", "pid": pid, "ts": min(w[0] for w in waits)}
            yield {"ph": "E", "pid": pid, "ts": agreed, "cat": "agreed"}
            waits = []
        yield {"name": e["name"], "ph": "B", "pid": pid, "ts": begin}
        yield {"ph": "E", "pid": pid, "ts": end}


basics.at_shutdown(_write)
