#!/usr/bin/env python3
"""The man page berth.torch(3), made of the docstrings of lib/python/berth: reference.py > berth.torch.3

It reads the sources and imports none of them.  A paragraph of a docstring is text; one with indented lines or
with examples (>>>) is printed as it is; lines "NAME: text" are items.  NAME of an argument is set as one.
"""
import ast
import os
import re

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib", "python", "berth")

# What a user looks for first.  lib/python/tests/test_reference.py knows if a name is missing.
MODULES = ["basics", "torch/collectives", "handles", "torch/optimizer", "torch/functions",
           "torch/compression", "torch/sync_batch_norm", "elastic", "torch/elastic/state",
           "torch/elastic/sampler", "objects", "launch", "timeline", "build", "errors"]

ITEM = re.compile(r"([A-Z_]+(?:, [A-Z_]+)*|\w+Error): +")


def tree_of(module):
    with open(os.path.join(ROOT, module + ".py")) as f:
        return ast.parse(f.read())


def names_of(module):
    """The names in its __all__."""
    lists = [part.value for part in tree_of(module).body
             if isinstance(part, ast.Assign) and getattr(part.targets[0], "id", "") == "__all__"]
    return {item.value for item in lists[0].elts if isinstance(item, ast.Constant)}


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def set_text(text, arguments):
    """Text with a line for each sentence; the names of ARGUMENTS, which are in capitals, as arguments."""
    def argument(found):
        name = found.group().lower()
        return f"\\fI{name}\\fP" if name in arguments else found.group()

    for sentence in re.split(r"(?<=[.:;])  +|(?<=[a-z)]\.) (?=[A-Z])", text.replace("\n", " ")):
        yield re.sub(r"\b[A-Z][A-Z_]+\b", argument, escaped(" ".join(sentence.split())))


def set_items(lines, arguments):
    """A list of what has names."""
    yield ".Bl -tag -width Ds -compact"
    for line in lines:
        found = ITEM.match(line)
        if found:
            name = found.group(1)
            yield f".It {name if name.endswith('Error') else 'Ar ' + name.lower().replace(',', ' ,')}"
            line = line[found.end():]
        yield from set_text(line, arguments)
    yield ".El"


def set_docstring(docstring, arguments=()):
    for number, paragraph in enumerate(docstring.split("\n\n")):
        lines = re.sub(r"  (?=\w+Error: )", "\n", paragraph).split("\n")
        if lines[0].startswith((" ", ">>>")):
            yield from [".Bd -literal -offset indent", *map(escaped, lines), ".Ed"]
            continue
        if number:
            yield ".Pp"
        first = next((i for i, line in enumerate(lines) if ITEM.match(line)), len(lines))
        if first:
            yield from set_text("\n".join(lines[:first]), arguments)
        if first < len(lines):
            yield from set_items(lines[first:], arguments)


def signature(function):
    """The arguments as they are written, without self."""
    args = function.args
    given = args.posonlyargs + args.args
    defaults = [None] * (len(given) - len(args.defaults)) + args.defaults
    texts = [ast.unparse(arg) + (f" = {ast.unparse(default)}" if default is not None else "")
             for arg, default in zip(given, defaults) if arg.arg not in ("self", "cls")]
    texts += [f"*{ast.unparse(args.vararg)}"] if args.vararg else []
    texts += [f"**{ast.unparse(args.kwarg)}"] if args.kwarg else []
    return texts, {arg.arg for arg in given}


def entry(node, prefix=""):
    """A function or a class with its methods."""
    is_class = isinstance(node, ast.ClassDef)
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)] if is_class else []
    function = next((m for m in methods if m.name == "__init__"), None) if is_class else node
    texts, arguments = signature(function) if function else ([], set())
    text = f"({', '.join(texts)})"
    if not is_class and node.returns is not None:
        text += f" -> {ast.unparse(node.returns)}"
    text = escaped(text).replace('"', "\\(dq")
    yield f'.It Ic {prefix}{node.name} Ns No "{text}"'
    yield from set_docstring(ast.get_docstring(node), arguments)
    shown = [m for m in methods if not m.name.startswith("_") and ast.get_docstring(m)]
    if shown:
        yield ".Bl -tag -width Ds"
        for method in shown:
            yield from entry(method, f"{prefix}{node.name}.")
        yield ".El"


def section(module, names):
    tree = tree_of(module)
    parts = [part for part in tree.body if getattr(part, "name", None) in names]
    if parts:
        title, _, rest = ast.get_docstring(tree).partition("\n\n")
        yield f".Ss {escaped(title).rstrip('.')}"
        yield from set_docstring(rest)
        yield ".Bl -tag -width Ds"
        for part in parts:
            yield from entry(part, "elastic." if "elastic" in module else "")
        yield ".El"


def page():
    yield '.\\" Made by man/reference.py of the docstrings in lib/python/berth.'
    yield from [".Dd November 27, 2026", ".Dt BERTH.TORCH 3", ".Os", ".Sh NAME", ".Nm berth.torch"]
    title, _, rest = ast.get_docstring(tree_of("torch/__init__")).partition("\n\n")
    yield f".Nd {title.rstrip('.')}"
    yield ".Sh DESCRIPTION"
    yield from set_docstring(rest)
    yield ".Sh REFERENCE"
    names, elastic = names_of("__init__") | names_of("torch/__init__"), names_of("torch/elastic/__init__")
    for module in MODULES:
        yield from section(module, elastic if "elastic" in module else names)
    yield from [".Sh SEE ALSO", ".Xr runner 1 ,", ".Xr berth 3"]


print("\n".join(line for line in page() if line))
