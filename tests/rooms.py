#!/usr/bin/env python3
"""rooms.py laws|circles BUILD, names, small, suites: whether sources keep the laws of the rooms in CONTRIBUTING.

A room is a folder of sources.  CONTRIBUTING has a table of them, from the line that begins with
"room" to the first empty line: name, what it takes from, its law.  Each room takes from itself
and, the library's apart, from common/; main.c takes from all rooms of its program.  CONTRIBUTING's map has a line for
each room and, indented, one for each file.

laws     an #include of a room, or a symbol that an object file takes from a room, that the
         table does not allow; a room or a source that CONTRIBUTING does not have
circles  files of a program that take symbols from one another in a circle
names    static functions of one word, or with the name of one in another file of their program:
         a backtrace does not tell them apart
small    how many static functions of at most 12 lines have one caller
suites   tests/unit/test_X.c of which X is no ROOM, ROOM_SOURCE or ROOM_SOURCE_SUBJECT; what is in
         tests/ and not in the map
"""
import collections
import glob
import os
import re
import subprocess
import sys

PROGRAMS = ("launcher", "agent", "common", "lib")


def sources():
    for program in PROGRAMS:
        for folder, _, names in os.walk(program):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".def")):
                    yield os.path.join(folder, name)


def scripts():
    """The modules of the Python package: the laws are not for them, but the map has them."""
    folder = "lib/python/berth"
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))
            if name.endswith(".py") and name != "__init__.py"]


def table():
    """{room: the rooms that it may take from}"""
    rooms, inside = {}, False
    for line in open("CONTRIBUTING"):
        if line.startswith("room "):
            inside = True
        elif inside and not line.strip():
            break
        elif inside and line[0] != " ":
            name, takes = re.match(r"(\S+)/ +(\S+)", line).groups()
            rooms[name] = set() if takes == "-" else set(takes.split(","))
    return rooms


def mapped():
    """The sources that CONTRIBUTING's map names, without their ends: "launcher/cli/help"."""
    room, names = None, set()
    for line in open("CONTRIBUTING"):
        if not line.startswith(" "):
            room = line.strip() if line.rstrip().endswith("/") else None
        elif room and re.match(r" {4}\S", line):
            names.add(room + line.split()[0])
    return names


def room_of(path):
    return os.path.dirname(path)


def allowed(rooms, user, used):
    """Whether file USER may take something from file USED."""
    if room_of(user) == room_of(used) or room_of(used) == "common" and not user.startswith("lib/"):
        return True
    if os.path.basename(user) in ("main.c", "main"):
        return used.split("/")[0] == user.split("/")[0]
    takes = rooms.get(room_of(user), set())
    return room_of(used) in takes or used in takes


def symbols(build):
    """{object without its ending: {object that it takes from: [symbols]}}"""
    defined, needs = {}, {}
    for source in sources():
        if not source.endswith(".c"):
            continue
        name = source[:-2]
        out = subprocess.run(["nm", "-g", f"{build}/obj/{name}.o"], capture_output=True, text=True)
        if out.returncode:
            print(f"{source}: there is no object file of it in {build}/obj")
        for line in out.stdout.splitlines():
            kind, symbol = line.split()[-2:]
            if kind == "U":
                needs.setdefault(name, []).append(symbol)
            elif kind not in "Ww":
                defined.setdefault(symbol, []).append(name)
    edges = {}
    for name, wanted in needs.items():
        program = name.split("/")[0]
        for symbol in wanted:
            for other in defined.get(symbol, []):
                if other != name and other.split("/")[0] in (program, "common"):
                    edges.setdefault(name, {}).setdefault(other, []).append(symbol)
    return edges


def laws(build):
    rooms, names = table(), mapped()
    for room in sorted({room_of(s) for s in sources()}):
        if room not in rooms:
            print(f"{room}/: CONTRIBUTING's table of rooms does not have it")
    for room in rooms:
        if not os.path.isdir(room):
            print(f"CONTRIBUTING: there is no room {room}/")
    for source in [*sources(), *scripts()]:
        if os.path.splitext(source)[0] not in names:
            print(f"{source}: CONTRIBUTING's map does not have it")
    for source in sources():
        for n, line in enumerate(open(source), 1):
            m = re.match(r' *# *include "([^"]+)"', line)
            if m and not allowed(rooms, source, m[1]):
                print(f"{source}:{n}: includes {m[1]}, which the law of {room_of(source)}/ does not allow")
    for name in sorted(names):
        if name.startswith(tuple(p + "/" for p in PROGRAMS)) and \
                not any(os.path.exists(name + end) for end in (".c", ".h", ".def", ".py")):
            print(f"CONTRIBUTING: the map has {name}, which is not there")
    for name, others in sorted(symbols(build).items()):
        for other, taken in sorted(others.items()):
            if not allowed(rooms, name, other):
                print(f"{name}.o: takes {', '.join(taken[:4])} from {other}.o, which the law of "
                      f"{room_of(name)}/ does not allow")


def bare(text):
    """TEXT without comments and strings; lines stay."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def static_functions(path):
    """{name: lines of its body} of the file PATH; declarations have none."""
    found = {}
    for m in re.finditer(r"^(?:__attribute__.*\n)?static\b[^;={}()]*?\b(?!__attribute__)(\w+)\((?!\*)[^;{}]*\)\s*(;|\{(.*?)^\})",
                         bare(open(path).read()), re.DOTALL | re.MULTILINE):
        if m[1] not in found or m[3]:
            found[m[1]] = m[3].count("\n") - 1 if m[3] else 0
    return found


# Sources that are compiled for several kinds of processors have the same functions.
SIMD = re.compile(r"lib/base/(kern|nh)_(base|avx2|avx512)\.c")


def programs():
    """The sources of each program."""
    for folders in (("launcher", "common"), ("agent", "common"), ("lib",), ("contrib/slurm",)):
        yield sorted(f for folder in folders for f in glob.glob(f"{folder}/**/*.c", recursive=True)
                     if not SIMD.fullmatch(f))


def names():
    for files in programs():
        places = collections.defaultdict(list)
        for file in files:
            for name in static_functions(file):
                places[name].append(file)
        for name, where in sorted(places.items()):
            if "_" not in name and name != "main":
                print(f"{where[0]}: the static function {name}() has one word: give it its file's")
            elif len(where) > 1:
                print(f"{where[0]}: {where[1]} has a static function {name}(), too")


def small():
    n = 0
    for file in sorted({f for files in programs() for f in files}):
        text = bare(open(file).read())
        # and 3 lines around its body; a function whose address is taken has no caller
        n += sum(0 < lines <= 9 and len(re.findall(rf"\b{name}\b", text)) == len(re.findall(rf"\b{name}\(", text)) == 2
                 for name, lines in static_functions(file).items())
    print(n)


# What no single source of the room does.
WHOLE_ROOM = {
    "job_endings": "one ending of a job at a time", "job_walk": "random jobs",
    "net_lost": "peers that are gone", "p2p_lost": "peers that are gone", "p2p_random": "random messages"}


def suites():
    files = collections.defaultdict(set)
    for path in [*sources(), *glob.glob("contrib/*/*.c")]:
        name = os.path.splitext(os.path.basename(path))[0]
        room = os.path.basename(room_of(path))
        files[room] |= {"", name, name.removeprefix(room + "_")}
    here = {path.split("/test_")[1][:-2] for path in glob.glob("tests/unit/test_*.c")}
    for suite in sorted(here - set(WHOLE_ROOM)):
        room, _, rest = suite.partition("_")
        parts = rest.split("_")
        if room not in files:
            print(f"tests/unit/test_{suite}.c: there is no room {room}/")
        elif not any("_".join(parts[:n]) in files[room] for n in range(1, len(parts) + 1)):
            print(f"tests/unit/test_{suite}.c: {room}/ has no source with the name {rest}, or with its beginning")
    for suite in sorted(set(WHOLE_ROOM) - here):
        print(f"tests/rooms.py: there is no suite test_{suite}")
    text = open("CONTRIBUTING").read().partition("\ntests/\n")[2].partition("\n\n")[0]
    known = set(re.findall(r"[\w.-]+", text))
    for name in sorted(os.listdir("tests")):
        if name not in known and name != "__pycache__":
            print(f"tests/{name}: CONTRIBUTING's map does not have it")


def circles(build):
    """Tarjan's strongly connected components over the arrows of symbols()."""
    edges = symbols(build)
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in edges.get(v, {}):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            circle = []
            while not circle or circle[-1] != v:
                circle.append(stack.pop())
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in edges:
        if name not in index:
            visit(name)
    for circle in found:
        print(f"circle of {len(circle)} files: {' '.join(circle)}")
        for a in circle:
            for b in circle:
                if b in edges.get(a, {}):
                    print(f"  {a}.o takes from {b}.o: {' '.join(edges[a][b][:6])}")


sys.setrecursionlimit(10000)
{"laws": laws, "circles": circles, "names": names, "small": small, "suites": suites}[sys.argv[1]](*sys.argv[2:])
