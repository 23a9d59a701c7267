"""Reads a merged timeline of either form, checks that it is sound, and prints what is in it.

timeline.py FILE: one line each: processes, tracks with their slices, arrows, steps.
"""
from __future__ import annotations

import collections
import decimal
import gzip
import json
import struct
import sys
from typing import Any, Dict, Iterator, List, Set, Tuple

Fields = Dict[int, List[Any]]


def fields(data: bytes) -> Fields:
    """A message of protobuf: its values by their numbers."""
    out: Fields = collections.defaultdict(list)
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        else:
            assert kind == 2, kind
            size, at = varint(data, at)
            assert at + size <= len(data)
            value, at = data[at:at + size], at + size
        out[key >> 3].append(value)
    return out


def varint(data: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            return value, at


class Timeline:
    """What both forms have in common."""

    def __init__(self) -> None:
        self.process: Dict[int, str] = {}
        self.track: Dict[Tuple[int, int], str] = {}
        self.slices: List[Tuple[Tuple[int, int], float, float, str, Dict[str, Any]]] = []
        self.instants: List[Tuple[Tuple[int, int], float, str, Dict[str, Any]]] = []
        self.flows: Dict[int, List[Tuple[Tuple[int, int], float]]] = collections.defaultdict(list)
        self.counters = 0
        self.about: Dict[str, Any] = {}

    def check(self) -> None:
        rows: Dict[Tuple[int, int], List[Tuple[float, float]]] = collections.defaultdict(list)
        for row, begin, end, name, _ in self.slices:
            assert row in self.track, (row, name)
            assert row[0] in self.process, row
            rows[row].append((begin, end))
        for row, slices in rows.items():
            stack: List[float] = []
            for begin, end in sorted(slices, key=lambda s: (s[0], -s[1])):
                while stack and stack[-1] <= begin:
                    stack.pop()
                assert not stack or end <= stack[-1], (row, begin, end, stack)
                stack.append(end)
        begins = {(row, begin) for row, begin, _, _, _ in self.slices}
        for places in self.flows.values():
            assert len(set(places)) == len(places)
            for place in places:
                assert place in begins, place

    def print(self) -> None:
        print("processes", len(self.process), "slices", len(self.slices), "counters", self.counters,
              "arrows", sum(len(p) > 1 for p in self.flows.values()))
        for pid in sorted(self.process):
            print(f"process {self.process[pid]}")
        count = collections.Counter((r[0], name) for r, _, _, name, _ in self.slices)
        for (pid, name), n in sorted(count.items()):
            print(f"  {self.process[pid]}: {name} x {n}")
        for row, _, _, name, args in self.slices:
            if self.track[row] == "critical rank of each step":
                print(f"step {args['step']}: {name}, {args['collectives']} collectives")
        for file in self.about.get("files", []):
            print(f"file {file['name']}: {file['clock']}, {file['slices']} slices"
                  + (", ends early" if "ends early" in file else ""))
        print("clock error", self.about["clock error"])


def read_json(data: bytes) -> Timeline:
    t = Timeline()
    whole = json.loads(data, parse_float=decimal.Decimal)  # doubles would be too coarse
    open_: Dict[Tuple[int, int], List[Tuple[float, str, Dict[str, Any]]]] = collections.defaultdict(list)
    arrows: Dict[int, List[str]] = collections.defaultdict(list)
    for e in whole["traceEvents"]:
        row = (e["pid"], e["tid"])
        if e["ph"] == "M":
            if e["name"] == "process_name":
                t.process[e["pid"]] = e["args"]["name"]
            elif e["name"] == "thread_name":
                t.track[row] = e["args"]["name"]
            continue
        assert e["ts"] >= 0
        args = e.get("args", {})
        at = round(e["ts"] * 1000)
        if e["ph"] == "X":
            t.slices.append((row, at, at + round(e["dur"] * 1000), e["name"], args))
        elif e["ph"] == "B":
            open_[row].append((at, e["name"], args))
        elif e["ph"] == "E":
            begin, name, args = open_[row].pop()
            t.slices.append((row, begin, at, name, args))
        elif e["ph"] == "i":
            t.instants.append((row, at, e["name"], args))
        elif e["ph"] == "C":
            t.counters += 1
        elif e.get("cat") == "collective":
            t.flows[e["id"]].append((row, at))
            arrows[e["id"]].append(e["ph"])
        else:
            assert e["ph"] in "stfbne", e
    for kinds in arrows.values():
        assert "".join(kinds) == "s" + "t" * (len(kinds) - 2) + "f", kinds
    for row, _, _, _, _ in t.slices:  # a viewer of JSON needs no name
        t.track.setdefault(row, str(row[1]))
    t.about = whole["otherData"]["about"]
    return t


def packets(data: bytes) -> Iterator[Fields]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        assert key == 1 << 3 | 2, key
        size, at = varint(data, at)
        yield fields(data[at:at + size])
        at += size


def annotations(event: Fields, names: Dict[int, Dict[int, str]]) -> Dict[str, Any]:
    args: Dict[str, Any] = {}
    for each in event[4]:
        f = fields(each)
        if f[9]:
            args.update(json.loads(f[9][0]))
        else:
            args[names[3][f[1][0]]] = f[3][0]
    return args


def read_perfetto(data: bytes) -> Timeline:
    t = Timeline()
    names: Dict[int, Dict[int, str]] = {1: {}, 2: {}, 3: {}}
    place: Dict[int, Tuple[int, int]] = {}
    parents: Dict[int, int] = {}
    counters: Set[int] = set()
    events: List[Tuple[int, Fields, str, Dict[str, Any]]] = []
    for n, p in enumerate(packets(data)):
        assert p[10] == [1] and p[13][0] & 2
        if p[13][0] & 1:
            names = {1: {}, 2: {}, 3: {}}
        assert n or p[13][0] & 1
        for interned in p[12]:
            for kind, entries in fields(interned).items():
                for entry in map(fields, entries):
                    assert entry[1][0] not in names[kind]
                    names[kind][entry[1][0]] = entry[2][0].decode()
        for d in map(fields, p[60]):
            uuid = d[1][0]
            if d[3]:
                process = fields(d[3][0])
                t.process[process[1][0]] = process[6][0].decode()
                parents[uuid] = process[1][0]
                continue
            place[uuid] = (parents[d[5][0]], uuid)
            if d[8]:
                counters.add(uuid)
            else:
                t.track[place[uuid]] = d[2][0].decode()
        for e in map(fields, p[11]):
            kind = e[9][0]
            assert e[11][0] in place, e
            assert (kind == 4) == (e[11][0] in counters)
            t.counters += kind == 4
            if kind != 4:
                name = names[2][e[10][0]] if kind != 2 else ""
                events.append((p[8][0], e, name, annotations(e, names)))
    begun: Dict[int, List[Tuple[int, str, Dict[str, Any]]]] = collections.defaultdict(list)
    for at, e, name, args in sorted(events, key=lambda v: v[0]):  # as Perfetto does: stable
        uuid = e[11][0]
        if e[9][0] == 3:
            t.instants.append((place[uuid], at, name, args))
        elif e[9][0] == 1:
            begun[uuid].append((at, name, args))
            for flow in e[47]:
                t.flows[flow].append((place[uuid], at))
        else:
            begin, name, args = begun[uuid].pop()
            t.slices.append((place[uuid], begin, at, name, args))
    t.about = [args for row, _, _, args in t.instants if t.track[row] == "about this file"][0]
    return t


def read(path: str) -> Timeline:
    with open(path, "rb") as f:
        data = f.read()
    if data[:2] == b"\x1f\x8b":
        assert path.endswith(".gz")
        data = gzip.decompress(data)
    t = read_json(data) if data[:1] == b"{" else read_perfetto(data)
    t.check()
    return t


if __name__ == "__main__":
    read(sys.argv[1]).print()
