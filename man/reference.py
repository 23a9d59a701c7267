#!/usr/bin/env python3
"""The man pages berth.torch(3) and berth.tensorflow(3), made of the docstrings of lib/python/berth:
reference.py torch > berth.torch.3

It reads the sources and imports none of them.  A paragraph of a docstring is text; one with indented lines or
with examples (>>>) is printed as it is; lines "NAME: text" are items.  NAME of an argument is set as one.
"""
import ast
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib", "python", "berth")

# Of each page, what a user looks for first: a prefix of names, the module whose __all__ has them, and for
# each section of them the modules that define them.  The first one has its title.  A name is in one section
# only.  The tests of the references know if a name is missing.
REST = ["objects", "launch", "timeline", "build", "errors"]
PAGES = {
    "torch": [
        ("", "torch/__init__", [
            "basics", "torch/collectives", "handles", "torch/optimizer", "torch/functions",
            "torch/compression", "torch/sync_batch_norm"]),
        ("elastic.", "torch/elastic/__init__", ["elastic", "torch/elastic/state", "torch/elastic/sampler"]),
        ("", "torch/__init__", REST)],
    "tensorflow": [
        ("", "tensorflow/__init__", [
            "basics", "tensorflow/mpi_ops", "tensorflow/tape", "tensorflow/optimizer", "tensorflow/functions",
            "tensorflow/compression"]),
        ("", "tensorflow/sync_batch_norm", ["tensorflow/sync_batch_norm"]),
        ("elastic.", "tensorflow/elastic", ["tensorflow/elastic elastic"]),
        ("", "tensorflow/__init__", [*REST, "tensorflow/util operations"]),
        ("keras.", "tensorflow/keras/__init__", [
            "tensorflow/keras/__init__", "_keras/optimizer", "_keras/functions"]),
        ("keras.callbacks.", "_keras/callbacks", ["_keras/callbacks"]),
        ("keras.elastic.", "_keras/elastic", ["_keras/elastic"]),
        ("berth.keras.", "keras/__init__", ["keras/__init__"])],
}
SEE_ALSO = {"torch": [], "tensorflow": ["berth-tensorflow 7"]}

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
    return texts, {arg.arg for arg in (*given, args.vararg, args.kwarg) if arg}


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
            yield from entry(method, f"{node.name}.")
        yield ".El"


def section(modules, names, prefix):
    """What MODULES define of the NAMES, with PREFIX.  It takes them out of NAMES."""
    parts = []
    for part in (part for module in modules for part in tree_of(module).body):
        name = prefix + getattr(part, "name", "")
        if name in names:
            names.remove(name)
            parts.append(part)
    if not parts:
        return
    title, _, rest = ast.get_docstring(tree_of(modules[0])).partition("\n\n")
    yield f".Ss {escaped(' '.join(title.split())).rstrip('.')}"
    yield from set_docstring(rest)
    yield ".Bl -tag -width Ds"
    for part in parts:
        yield from entry(part, prefix)
    yield ".El"


def page(package):
    yield '.\\" Made by man/reference.py of the docstrings in lib/python/berth.'
    yield from [".Dd November 28, 2026", f".Dt BERTH.{package.upper()} 3", ".Os", ".Sh NAME",
                f".Nm berth.{package}"]
    title, _, rest = ast.get_docstring(tree_of(f"{package}/__init__")).partition("\n\n")
    yield f".Nd {title.rstrip('.')}"
    yield ".Sh DESCRIPTION"
    yield from set_docstring(rest)
    yield ".Sh REFERENCE"
    parts = PAGES[package]
    names = {prefix + name for prefix, of, _ in parts for name in names_of("__init__") | names_of(of)}
    for prefix, _, modules in parts:
        for together in modules:
            yield from section(together.split(), names, prefix)
    yield from [".Sh SEE ALSO", *(f".Xr {other} ," for other in ["runner 1", "berth 3", *SEE_ALSO[package]])]


print("\n".join(line for line in page(sys.argv[1]) if line).rstrip(" ,"))
