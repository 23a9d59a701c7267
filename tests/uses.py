#!/usr/bin/env python3
"""uses.py circles|members|lint, stays FUNCTION PARAMETER: how the sources of the programs use one another.

circles  units that use one another in a circle.  A source and its header are one unit; a header alone
         is one.  A unit uses the functions and variables that it names, and a type whose definition
         it needs: for a member, a size, a value, a constant.  A pointer to a struct needs none.
members  structs of more than 40 members.  Those of a struct inside count, unless a function takes
         that one without the struct around it.  Members that a macro makes of functions do not.
lint     whether there are more of both than the numbers below say
stays    follows PARAMETER of FUNCTION, and what is assigned from it, through the calls that pass it on:
         through how many files, and how often back to a file that it had left.  Each function is
         entered once for each of its parameters.

clang prints the tree of each source; headers that are made are in BUILD, or in build/.
"""
import collections
import glob
import multiprocessing
import os
import re
import subprocess
import sys

FOLDERS = "launcher", "agent", "common", "lib", "contrib"
MOST_MEMBERS = 40

# Units in circles, and structs of too many members, of each program.  These only fall, to 0.
KNOWN_CIRCLES = {"launcher": 0, "agent": 0, "lib": 0}
KNOWN_MEMBERS = {"launcher": 0, "lib": 0}

# What clang prints of a node: its depth, kind and address; its place, if the file is another one than
# that of the place before; its types.
NODE = re.compile(r"([| `-]*)(\w+) (0x[0-9a-f]+)")
PLACE = re.compile(r"(?:<|, |> )([^\s<>:]+\.(?:[ch]|def)|<[a-z -]+>):\d+:\d+")
TYPE = re.compile(r"'([^']*)'")
NAME = re.compile(r" (\w+) '")
TAG = re.compile(r" (?:struct|union) (\w+) definition$")
BODY = re.compile(r"[|` ] [|`]-CompoundStmt")
PARAMETER = re.compile(r"[|` ] [|`]-ParmVarDecl (0x[0-9a-f]+) .*? (\w+) '([^']*)'")
MEMBER = re.compile(r"(?:->|\.)(\w*) (0x[0-9a-f]+)$")
REFERENCE = re.compile(r" (Function|Var|ParmVar|EnumConstant) (0x[0-9a-f]+) '(\w+)' '([^']*)'")

BY_VALUE = re.compile(r"\b(?:struct|union) (\w+)(?=$|\[|,|\))")
ENUM = re.compile(r"\benum (\w+)")
NOT_NUMBER = re.compile(r"\*|\bstruct ")
DECLARES = {"VarDecl", "ParmVarDecl", "FieldDecl", "FunctionDecl"}
# These only say where a value is.
NO_VALUES = {"MemberExpr", "DeclRefExpr", "ParenExpr", "CompoundStmt", "RecordDecl", "EnumDecl", "TypedefDecl"}


def unit(path):
    return path if path.endswith(".def") else os.path.splitext(path)[0]


def program(path):
    return path.split("/")[0]


def tree(path):
    """(file, [(depth, kind, address, line)]) of what stands at the top of PATH and of our headers in it."""
    out = subprocess.run(["clang", "-std=c11", "-D_GNU_SOURCE", "-I.", f"-I{os.environ.get('BUILD', 'build')}", "-w",
                          "-fsyntax-only", "-fno-color-diagnostics", "-Xclang", "-ast-dump", path],
                         capture_output=True, text=True)
    if out.returncode:
        print(f"warning: {path}: clang: {out.stderr.splitlines()[0]}", flush=True)
    file = ""
    for part in re.split(r"\n(?=[|`]-)", out.stdout)[1:]:
        head, _, rest = part.partition("\n")
        file = (PLACE.findall(head) or [file])[-1].removeprefix("./")
        if program(file) in FOLDERS:
            # a table or a body that a source includes is part of it; what may be included twice is a header
            yield path if file.endswith(".def") and "\n#ifndef" not in open(file).read() else file, \
                [(len(m[1]), m[2], m[3], line) for line in part.split("\n") if (m := NODE.match(line))]
        file = (PLACE.findall(rest) or [file])[-1]


class Source:
    """What a source and its headers say."""

    def __init__(self, path, keep=False):
        self.path = path
        self.defines = {}    # {name: unit}, of functions and variables that others may take
        self.names = set()   # {(unit, name)}: it takes one of those
        self.needs = set()   # {(unit, unit, name)}: it needs a type, or an inline function
        self.structs = {}    # {(file, tag): [(tag of a member or None, members of one without a tag or None)]}
        self.takes = []      # the tags that a function takes
        self.functions = {}  # {name: (file, [(address, name) of a parameter], nodes)}, if KEEP

        parts = list(tree(path))
        self.types, self.members, self.inline, self.top = {}, {}, {}, set()
        for file, nodes in parts:
            self._declarations(file, nodes)
        for file, nodes in parts:
            _, kind, _, line = nodes[0]
            for node in nodes if kind != "TypedefDecl" else ():
                self._uses(unit(file), *node[1:])
            if kind == "RecordDecl" and line.endswith(" definition"):
                self._struct(file, nodes)
            elif kind == "FunctionDecl":
                found = [m.groups() for node in nodes if (m := PARAMETER.match(node[3]))]
                self.takes.append({tag for p in found for tag in re.findall(r"\b(?:struct|union) (\w+)", p[2])})
                if keep and any(BODY.match(node[3]) for node in nodes):
                    self.functions[NAME.search(line)[1]] = file, [p[:2] for p in found], nodes
        del self.types, self.members, self.inline, self.top

    def _declarations(self, file, nodes):
        _, kind, address, line = nodes[0]
        if kind in ("FunctionDecl", "VarDecl"):
            if not re.search(r"' static\b", line):
                self.top.add(address)
                if kind == "VarDecl" and "' extern" not in line or any(BODY.match(node[3]) for node in nodes):
                    self.defines[NAME.search(line)[1]] = unit(file)
            elif file != self.path:
                self.inline[address] = file
        elif kind == "TypedefDecl":
            self.types["typedef " + NAME.search(line)[1]] = file
        for _, kind, address, line in nodes:
            if kind in ("FieldDecl", "EnumConstantDecl"):
                self.members[address] = file
            elif kind in ("RecordDecl", "EnumDecl"):
                tag = TAG.search(line) if kind == "RecordDecl" else re.search(r" (\w+)$", line)
                if tag:
                    self.types[tag[1]] = file

    def _uses(self, here, kind, address, line):
        def need(file, name):
            if file and unit(file) != here:
                self.needs.add((here, unit(file), name))

        if kind == "DeclRefExpr":
            m = REFERENCE.search(line)
            if m and m[1] == "EnumConstant":
                need(self.members.get(m[2]), m[3])
            elif m and m[2] in self.inline:
                need(self.inline[m[2]], m[3])
            elif m and m[2] in self.top:
                self.names.add((here, m[3]))
        elif kind == "MemberExpr" and (m := MEMBER.search(line)):
            need(self.members.get(m[2]), "." + m[1])
        if kind in NO_VALUES or kind.endswith("Type"):
            return
        for text in TYPE.findall(line):
            if kind == "FunctionDecl":
                text = text.partition(" (")[0]
            for tag in BY_VALUE.findall(text):
                need(self.types.get(tag), tag)
            if kind in DECLARES:
                for tag in ENUM.findall(text):
                    need(self.types.get(tag), tag)
                name = re.sub(r"[ *]|\bconst\b|\[\d*\]", "", text)
                need(self.types.get("typedef " + name), name)
            elif re.search(r"'(\+|-|\+\+|--)'", line) and (m := re.match(r"(?:const )?struct (\w+) \*$", text)):
                need(self.types.get(m[1]), m[1])

    def _struct(self, file, nodes):
        around, closed = [], None  # (depth, members)
        for depth, kind, _, line in nodes:
            if kind not in ("RecordDecl", "FieldDecl"):
                continue
            while around and around[-1][0] >= depth:
                closed = around.pop()[1]
            if kind == "RecordDecl":
                around.append((depth, []))
                if tag := TAG.search(line):
                    self.structs[file, tag[1]] = around[-1][1]
            elif "implicit" not in line.split("'")[0]:
                tag = BY_VALUE.search(TYPE.findall(line)[0])
                # only a table that a macro makes has these
                if "typeof (&(" in line:
                    tag = ["", "()"]
                around[-1][1].append((None, closed) if "(unnamed" in line or "(anonymous" in line
                                     else (tag and tag[1], None))


def read():
    paths = sorted(path for folder in FOLDERS for path in glob.glob(f"{folder}/**/*.c", recursive=True))
    with multiprocessing.Pool(2) as pool:
        return pool.map(Source, paths, 4)


def arrows(found):
    """{unit: {unit that it uses: {names}}}"""
    defined = collections.defaultdict(set)
    edges = collections.defaultdict(lambda: collections.defaultdict(set))
    for source in found:
        for name, where in source.defines.items():
            defined[name].add(where)
    for source in found:
        for here, there, name in source.needs:
            edges[here][there].add(name)
        for here, name in source.names:
            for there in defined[name]:
                if there != here and program(there) in (program(here), "common"):
                    edges[here][there].add(name)
    return edges


def circles_of(edges):
    """Tarjan's strongly connected components of several units, the smallest first."""
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

    for v in list(edges):
        if v not in index:
            visit(v)
    return sorted(found, key=len)


def large_structs(found):
    """(number of members, file, tag), the fewest first."""
    structs, takes, tagged = {}, collections.defaultdict(list), collections.defaultdict(list)
    for source in found:
        structs.update(source.structs)
        for tags in source.takes:
            for tag in tags:
                takes[tag].append(tags)
    for (file, tag), inner in structs.items():
        tagged[tag].append((file, inner))

    def count(around, file, members):
        n = 0
        for tag, inner in members:
            if inner is not None:
                n += count(around, file, inner)
            elif tag in tagged and all(around in tags for tags in takes[tag]):
                n += count(around, *next((s for s in tagged[tag] if s[0] == file), tagged[tag][0]))
            else:
                n += tag != "()"
        return n

    counts = sorted((count(tag, file, inner), file, tag) for (file, tag), inner in structs.items())
    return [c for c in counts if c[0] > MOST_MEMBERS]


def circles():
    edges = arrows(read())
    for circle in circles_of(edges):
        print(f"circle of {len(circle)} units: {' '.join(circle)}")
        for a in circle:
            for b in circle:
                if b in edges.get(a, {}):
                    names = sorted(edges[a][b])
                    print(f"  {a} uses {b}: {' '.join(names[:8])}{' ...' if len(names) > 8 else ''}")


def members():
    for n, file, tag in large_structs(read()):
        print(f"{file}: struct {tag} has {n} members")


def lint():
    found = read()
    in_circles = collections.Counter(program(u) for circle in circles_of(arrows(found)) for u in circle)
    large = collections.Counter(program(file) for _, file, _ in large_structs(found))
    for now, known, what, command in (
            (in_circles, KNOWN_CIRCLES, "units in circles", "circles"),
            (large, KNOWN_MEMBERS, f"structs of more than {MOST_MEMBERS} members", "members")):
        for name in FOLDERS:
            most = known.get(name, 0)
            if now[name] > most:
                print(f"{name}/: {now[name]} {what}, {most} are the most: see tests/uses.py {command}")
            elif now[name] < most:
                print(f"{name}/: {now[name]} {what}: tests/uses.py knows {most}, so lower its number")


def passed_on(nodes, parameter):
    """[(function, place)]: the calls in NODES that pass on what begins as the variable PARAMETER."""
    ends = []
    for i, node in enumerate(nodes):
        ends.append(next((k for k in range(i + 1, len(nodes)) if nodes[k][0] <= node[0]), len(nodes)))

    def parts(i):
        k = i + 1
        while k < ends[i]:
            yield k
            k = ends[k]

    def variables(i, in_calls):
        k = i
        while k < ends[i]:
            if nodes[k][1] == "CallExpr" and not in_calls:
                k = ends[k]
                continue
            if nodes[k][1] == "DeclRefExpr" and (m := REFERENCE.search(nodes[k][3])) and "Var" in m[1]:
                yield m[2], m[4]
            k += 1

    held = {parameter}
    for turn in range(2):  # a loop assigns what it passes on later
        found = []
        for i, (_, kind, address, line) in enumerate(nodes):
            inner = list(parts(i))
            if kind == "VarDecl" and inner:
                if NOT_NUMBER.search(TYPE.findall(line)[0]) and any(v in held for v, _ in variables(inner[0], True)):
                    held.add(address)
            elif kind == "BinaryOperator" and line.endswith(" '='") and any(v in held for v, _ in variables(inner[1], True)):
                to = next(variables(inner[0], False), None)
                if to and NOT_NUMBER.search(to[1]):
                    held.add(to[0])
            elif kind == "CallExpr":
                called = next((m for k in range(inner[0], ends[inner[0]]) if (m := REFERENCE.search(nodes[k][3]))), None)
                if called and called[1] == "Function":
                    found += [(called[3], n) for n, k in enumerate(inner[1:])
                              if NOT_NUMBER.search(TYPE.findall(nodes[k][3])[0]) and any(v in held for v, _ in variables(k, False))]
    return found


def stays(function, parameter):
    functions = collections.defaultdict(list)
    mine = next(f for folder in FOLDERS for f in glob.glob(f"{folder}/**/*.c", recursive=True)
                if re.search(rf"^\w.*\b{function}\([^;]*?^{{", open(f).read(), re.MULTILINE))
    for path in sorted(p for folder in (program(mine), "common") for p in glob.glob(f"{folder}/**/*.c", recursive=True)):
        for name, found in Source(path, keep=True).functions.items():
            if found not in functions[name]:
                functions[name].append(found)
    files, seen = [], set()

    def follow(name, file, place):
        here = functions.get(name, [])
        here = next((f for f in here if f[0] == file), here[0] if here else None)
        if not here or place >= len(here[1]) or (here[0], name, place) in seen:
            return
        seen.add((here[0], name, place))
        files.append(here[0])
        for called, at in passed_on(here[2], here[1][place][0]):
            follow(called, here[0], at)

    names = [name for _, name in functions[function][0][1]]
    follow(function, mine, names.index(parameter))
    runs = [f for i, f in enumerate(files) if i == 0 or files[i - 1] != f]
    for file, n in collections.Counter(runs).most_common():
        print(f"{n:4} {file}")
    print(f"{len(files)} functions, {len(set(runs))} files, {len(runs) - len(set(runs))} returns to a file already left")


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    {"circles": circles, "members": members, "lint": lint, "stays": stays}[sys.argv[1]](*sys.argv[2:])
