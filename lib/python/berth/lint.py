"""Mistakes of distributed training in a script, found in its text: `runner --lint train.py`.

The script is parsed and not imported, and this file needs nothing but Python's own modules: `python3 lint.py
train.py` does the same.  A finding is a line as compilers have it, and a line that says how to mend it.  A
rule prefers silence to a guess: it looks at what it can follow to a constant or to a call of Horovod,
torch.distributed or Accelerate.  Modules that lie beside the script are read for their names, as they may do
what it lacks.

The status is 0 if nothing was found, 1 if something was, 2 if a file can't be read.  Notes, which depend on
how the script is used, leave it at 0.
"""
from __future__ import annotations

import ast
import os
import re
import sys
from typing import Callable, Dict, Final, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

# Packages with Horovod's interface, and what may follow before the name itself.
HOROVOD: Final = re.compile(r"(horovod|berth|perseus|byteps)((\.(torch|tensorflow|keras|mxnet|horovod))*)\.")
# "rank" of which world a call or a variable is.
CALLS: Final = {"hvd.rank": "rank", "hvd.local_rank": "local_rank", "hvd.size": "size",
                "hvd.local_size": "local_size", "dist.get_rank": "rank", "dist.get_world_size": "size",
                "dist.get_node_local_rank": "local_rank"}
VARIABLES: Final = {"RANK": "rank", "LOCAL_RANK": "local_rank", "WORLD_SIZE": "size",
                    "LOCAL_WORLD_SIZE": "local_size", "HOROVOD_RANK": "rank",
                    "HOROVOD_LOCAL_RANK": "local_rank", "HOROVOD_SIZE": "size",
                    "HOROVOD_LOCAL_SIZE": "local_size", "OMPI_COMM_WORLD_RANK": "rank",
                    "OMPI_COMM_WORLD_LOCAL_RANK": "local_rank", "OMPI_COMM_WORLD_SIZE": "size",
                    "OMPI_COMM_WORLD_LOCAL_SIZE": "local_size", "SLURM_PROCID": "rank",
                    "SLURM_LOCALID": "local_rank", "SLURM_NTASKS": "size"}
ACCELERATE: Final = {"process_index": "rank", "local_process_index": "local_rank", "num_processes": "size"}
# Names that one rank alone may bear: a test of them may be a test of the rank.
CHOSEN: Final = re.compile(
    r"rank|main|master|chief|primary|leader|root|zero|node|process|worker|gpu|verbose", re.I)
HELD_OUT: Final = re.compile(
    r"(^|_)(test|val|valid|validation|eval|evaluation|dev)(_|set|$|ds|data|sampler)", re.I)
COLLECTIVES: Final = re.compile(
    r"hvd\.((grouped_)?(allreduce|allgather|reducescatter)(_async)?_?|broadcast(_async)?_?|alltoall|barrier"
    r"|(broadcast|allgather)_object|broadcast_(parameters|variables|global_variables|optimizer_state))$"
    r"|dist\.(all_reduce|all_gather\w*|all_to_all\w*|broadcast\w*|barrier|reduce_scatter\w*|reduce|gather\w*"
    r"|scatter\w*|monitored_barrier)$"
    r"|accelerator\.(gather\w*|reduce|wait_for_everyone|pad_across_processes)$")
AVERAGES: Final = re.compile(
    r"all_?reduce|all_?gather|gather|reduce|MetricAverageCallback|torchmetrics|barrier")
SHARDED: Final = {"FullyShardedDataParallel", "FSDP", "fully_shard", "deepspeed", "dcp",
                  "ZeroRedundancyOptimizer", "parallelize_module", "DTensor", "ShardedTensor",
                  "PipelineStage"}
SPARING: Final = {"allow_growth", "set_memory_growth", "per_process_gpu_memory_fraction",
                  "set_logical_device_configuration", "set_virtual_device_configuration"}
AVERAGING: Final = {"DistributedOptimizer", "DistributedGradientTape", "DistributedTrainer"}
CHOOSERS: Final = {"set_device", "visible_device_list", "set_visible_devices", "device_ids",
                   "set_device_index", "local_rank", "device_index", "gpu_id"}
SAVERS: Final = {"tf.train.Saver", "tf.train.Checkpoint", "tf.train.CheckpointManager"}
WRAPPED: Final = re.compile(r"DistributedDataParallel|^DDP$|^replicate$|distribute_|Accelerator|lightning|rpc"
                            r"|average|all_?reduce|reduce_scatter|Distributed\w*Optimizer|[Pp]ipeline|^Join$"
                            r"|Fabric")
TRAINS: Final = {"backward", "fit", "fit_generator", "minimize", "train_on_batch", "gradient"}
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Finding(NamedTuple):
    """What is wrong in a line, and how to mend it; a NOTE depends on how the script is used."""

    line: int
    what: str
    fix: str
    note: bool = False


def canonical(name: str) -> str:
    """NAME without what tells different packages of one interface apart."""
    found = HOROVOD.match(name)
    if found:
        return "hvd." + name[found.end():]
    name = re.sub(r"^torch\.distributed\.", "dist.", name)
    name = re.sub(r"^tensorflow\.(compat\.v[12]\.)?", "tf.", name)
    name = re.sub(r"^dist\.(distributed_c10d)\.", "dist.", name)
    return re.sub(r"^tf\.(keras\.|(?=optimizers\.))(_v2\.)?", lambda m: "keras.", name)


class Script:
    """A script's tree, and what its names stand for."""

    def __init__(self, text: bytes, path: str) -> None:
        self.tree = ast.parse(text, path)
        self.folder = os.path.dirname(os.path.abspath(path))
        self.up: Dict[ast.AST, ast.AST] = {}
        self.alias: Dict[str, str] = {}
        self.given: Dict[Tuple[Optional[ast.AST], str], List[Optional[ast.expr]]] = {}
        self.words: Set[str] = set()
        self.strings: Set[str] = set()
        self.nodes: List[ast.AST] = list(ast.walk(self.tree))
        for node in self.nodes:
            for child in ast.iter_child_nodes(node):
                self.up[child] = node
        for node in self.nodes:
            self.read_import(node)
            self.read_assignment(node)
        self.read_words(self.nodes)
        self.read_beside()
        self.calls: List[Tuple[ast.Call, str]] = [(n, self.name(n.func)) for n in self.nodes
                                                  if isinstance(n, ast.Call)]
        self.called: Set[str] = {name for _, name in self.calls}
        self.horovod = "hvd.init" in self.called
        self.torch = bool({"dist.init_process_group", "dist.init_device_mesh"} & self.called)
        self.accelerate = any(name.endswith("Accelerator") for name in self.called)
        self.tensorflow = any(full.split(".")[0] in ("tensorflow", "keras") for full in self.alias.values())

    # ---- reading ----

    def read_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for part in node.names:
                first = part.name.split(".")[0]
                self.alias[part.asname or first] = part.name if part.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for part in node.names:
                self.alias[part.asname or part.name] = f"{node.module}.{part.name}"

    def read_assignment(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.assign(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            self.assign(node.target, node.value)
        elif isinstance(node, (ast.AugAssign, ast.For, ast.comprehension)):
            self.assign(node.target, None)
        elif isinstance(node, ast.withitem) and node.optional_vars:
            self.assign(node.optional_vars, None)
        elif isinstance(node, ast.arg):
            function = self.up[self.up[node]]
            self.given.setdefault((function, node.arg), []).append(None)

    def assign(self, target: ast.AST, value: Optional[ast.expr]) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts: Sequence[Optional[ast.expr]] = [None] * len(target.elts)
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                parts = value.elts
            for one, part in zip(target.elts, parts):
                self.assign(one, part)
        elif isinstance(target, ast.Name):
            self.given.setdefault((self.scope(target), target.id), []).append(value)
        elif isinstance(target, ast.Attribute):
            self.given.setdefault((None, ast.unparse(target)), []).append(value)

    def read_words(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.Name):
                self.words.add(node.id)
            elif isinstance(node, ast.Attribute):
                self.words.add(node.attr)
            elif isinstance(node, ast.alias):
                self.words.update(node.name.split("."))
            elif isinstance(node, ast.keyword) and node.arg:
                self.words.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.strings.add(node.value)

    def read_beside(self) -> None:
        """The words of modules that lie beside the script: they may do what it lacks."""
        names = {full.split(".")[0] for full in self.alias.values()}
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom) and node.level:
                names |= {(node.module or part.name).split(".")[0] for part in node.names}
        for name in sorted(names):
            for path in (f"{name}.py", f"{name}/__init__.py"):
                try:
                    with open(os.path.join(self.folder, path), "rb") as file:
                        self.read_words(list(ast.walk(ast.parse(file.read()))))
                except (OSError, SyntaxError, ValueError, RecursionError):
                    pass

    # ---- names ----

    def scope(self, node: ast.AST) -> ast.AST:
        """The function that NODE is in, or the module."""
        while node in self.up:
            node = self.up[node]
            if isinstance(node, FUNCTIONS):
                return node
        return self.tree

    def name(self, node: ast.AST) -> str:
        """The whole name of what NODE refers to: hvd.rank, dist.barrier, torch.save; "" for none."""
        parts: List[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ".".join(["", *reversed(parts)]) if parts else ""
        first = self.alias.get(node.id, node.id)
        if first == node.id and parts and self.is_accelerator(node):
            first = "accelerator"
        return canonical(".".join([first, *reversed(parts)]))

    def is_accelerator(self, node: ast.Name) -> bool:
        return any(isinstance(value, ast.Call) and method(value) == "Accelerator"
                   for value in self.values(node))

    def values(self, node: ast.expr) -> List[Optional[ast.expr]]:
        """All that is assigned to the name NODE; None for what isn't known."""
        if isinstance(node, ast.Attribute):
            return self.given.get((None, ast.unparse(node)), [])
        if not isinstance(node, ast.Name):
            return []
        scope: ast.AST = node
        while scope is not self.tree:
            scope = self.scope(scope)
            if (scope, node.id) in self.given:
                return self.given[scope, node.id]
        return []

    def kind(self, node: Optional[ast.AST], depth: int = 6) -> str:
        """rank, local_rank, size or local_size, if that is what NODE is; else ""."""
        if node is None or not depth:
            return ""
        if isinstance(node, ast.Call):
            return self.kind_of_call(node, depth)
        if isinstance(node, ast.Subscript):
            return VARIABLES.get(text_of(node.slice), "") if self.name(node.value) == "os.environ" else ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            parts = [part for part in node.values if isinstance(part, ast.FormattedValue)]
            return self.kind(parts[0].value, depth - 1) if len(parts) == 1 and text in DEVICES else ""
        if isinstance(node, ast.BinOp) and text_of(node.left) in FORMATS:
            right = node.right
            inside = right.elts[0] if isinstance(right, ast.Tuple) and right.elts else right
            return self.kind(inside, depth - 1) if isinstance(node.op, (ast.Mod, ast.Add)) else ""
        if isinstance(node, (ast.Name, ast.Attribute)):
            kinds = {self.kind(value, depth - 1) for value in self.values(node)}
            if not kinds and isinstance(node, ast.Attribute):
                known = ACCELERATE.get(node.attr, "") if self.name(node).startswith("accelerator.") else ""
                return "local_rank" if node.attr == "local_rank" else known
            return kinds.pop() if len(kinds) == 1 else ""
        return ""

    def kind_of_call(self, node: ast.Call, depth: int) -> str:
        name = self.name(node.func)
        if name in CALLS and not node.args and not node.keywords:
            return CALLS[name]
        if name in ("os.getenv", "os.environ.get") and node.args:
            return VARIABLES.get(text_of(node.args[0]), "")
        if name in ("int", "str") and len(node.args) == 1:
            return self.kind(node.args[0], depth - 1)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format" and len(node.args) == 1:
            return self.kind(node.args[0], depth - 1) if text_of(node.func.value) in FORMATS else ""
        return ""

    def has(self, node: Optional[ast.AST], *kinds: str) -> bool:
        """Whether a part of NODE is one of KINDS."""
        return node is not None and any(self.kind(part) in kinds for part in ast.walk(node)
                                        if isinstance(part, ast.expr))

    def constant(self, node: Optional[ast.expr], depth: int = 4) -> object:
        """The value of NODE, if it is one constant; else None."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self.constant(node.operand, depth)
            return -number if isinstance(number, (int, float)) else None
        if isinstance(node, ast.Call) and self.name(node.func) in ("str", "int") and len(node.args) == 1:
            return self.constant(node.args[0], depth)
        values = self.values(node) if node and depth else []
        return self.constant(values[0], depth - 1) if len(values) == 1 and values[0] else None

    def names_rank(self, node: Optional[ast.AST], depth: int = 3) -> bool:
        """Whether NODE may have to do with the rank: generous, so that doubt ends in silence."""
        if node is None or not depth:
            return False
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id == "__name__":
                return False
            word = last_name(part)
            if CHOSEN.search(word) or text_of(part) in VARIABLES:
                return True
            if isinstance(part, (ast.Name, ast.Attribute)) and \
                    any(self.names_rank(value, depth - 1) for value in self.values(part)):
                return True
        return False

    # ---- places ----

    def block(self, statement: ast.AST) -> Sequence[ast.stmt]:
        """The statements of the block that STATEMENT is in."""
        for field in ("body", "orelse", "finalbody"):
            block = getattr(self.up.get(statement), field, None)
            if isinstance(block, list) and statement in block:
                return block
        return []

    def before(self, statement: ast.AST) -> Iterator[ast.stmt]:
        """The statements of its block before STATEMENT."""
        for one in self.block(statement):
            if one is statement:
                return
            yield one

    def branches(self, node: ast.AST) -> Iterator[Tuple[ast.AST, str, ast.expr]]:
        """The branches that NODE is in, up to its function: node, "body" or "orelse", its test."""
        while node in self.up and not isinstance(node, FUNCTIONS):
            above = self.up[node]
            if isinstance(above, ast.If) and node is not above.test:
                yield above, "body" if node in above.body else "orelse", above.test
            elif isinstance(above, ast.IfExp) and node is not above.test:
                yield above, "body" if node is above.body else "orelse", above.test
            elif isinstance(above, ast.BoolOp) and node is not above.values[0] and \
                    isinstance(above.op, ast.And):
                yield above, "body", above.values[0]
            node = above

    def exclusive(self, a: ast.AST, b: ast.AST) -> bool:
        """Whether A and B are in different branches of one test."""
        sides = {id(at): side for at, side, _ in self.branches(a)}
        return any(sides.get(id(at), side) != side for at, side, _ in self.branches(b))


DEVICES: Final = ("", "cuda:", "gpu:", "/gpu:", "/device:GPU:", "/GPU:")
FORMATS: Final = tuple(device + form for device in DEVICES for form in ("%d", "%s", "{}", ""))[:-1]


def text_of(node: Optional[ast.AST]) -> str:
    """The text of a constant; else ""."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def last_name(node: ast.AST) -> str:
    """The name NODE, or the last part of one with dots; else ""."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def argument(call: ast.Call, at: int, *names: str) -> Optional[ast.expr]:
    """The argument of CALL with one of NAMES, or the one at the place AT."""
    for keyword in call.keywords:
        if keyword.arg in names:
            return keyword.value
    plain = [arg for arg in call.args if not isinstance(arg, ast.Starred)]
    return plain[at] if 0 <= at < len(plain) == len(call.args) else None


def method(call: ast.Call) -> str:
    """The last part of the name that CALL calls."""
    return last_name(call.func)


# ---- the rules ----


def chosen_gpus(s: Script) -> Iterator[Tuple[ast.expr, ast.expr]]:
    """Where S chooses a GPU: the place, and the number."""
    for node in s.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr == "visible_device_list":
                    yield target, node.value
                elif isinstance(target, ast.Subscript) and text_of(target.slice) == "CUDA_VISIBLE_DEVICES":
                    yield target, node.value
        elif isinstance(node, ast.keyword) and node.arg == "visible_device_list":
            yield node.value, node.value
    for call, name in s.calls:
        if name in ("torch.cuda.set_device", "torch.cuda.device", "torch.accelerator.set_device_index"):
            number = argument(call, 0, "device")
        elif name == "torch.device":
            number = argument(call, 1, "index") or argument(call, 0, "type", "device")
        elif method(call) == "set_visible_devices":
            number = argument(call, 0, "devices")
        else:
            continue
        while isinstance(number, (ast.List, ast.Tuple)) and len(number.elts) == 1:
            number = number.elts[0]
        if isinstance(number, ast.Subscript) and not isinstance(number.slice, ast.Slice):
            number = number.slice
        if isinstance(number, ast.Call) and s.name(number.func) == "torch.device":
            continue  # it has its own turn
        if number:
            yield call, number


def gpu_of_rank(s: Script) -> Iterator[Finding]:
    """L1: the number of a GPU is not the local rank."""
    for place, number in chosen_gpus(s):
        kind = s.kind(number)
        if kind in ("size", "local_size"):
            yield Finding(place.lineno,
                          f"the GPU of a rank is chosen by its {WORDS[kind]}, which is the same on all "
                          "ranks of a host",
                          "choose it by the local rank")
        elif kind == "rank":
            yield Finding(place.lineno,
                          "the GPU of a rank is chosen by its rank among all hosts: only the first host "
                          "has a GPU with each of these numbers",
                          "choose it by the local rank")


WORDS: Final = {"rank": "rank", "local_rank": "local rank", "size": "number of ranks",
                "local_size": "number of ranks on its host"}


Share = Tuple[ast.expr, Optional[ast.expr], Optional[ast.expr], Optional[ast.expr]]


def shares(s: Script) -> Iterator[Share]:
    """Where S takes a rank's share of data: the place, how many shares, which one, and what is shared out."""
    for call, name in s.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "shard":
            yield call, argument(call, 0, "num_shards"), argument(call, 1, "index"), call.func.value
        elif name.endswith("DistributedSampler"):
            yield (call, argument(call, 1, "num_replicas"), argument(call, 2, "rank"),
                   argument(call, 0, "dataset"))
        elif name.endswith("split_dataset_by_node"):
            yield (call, argument(call, 2, "world_size"), argument(call, 1, "rank"),
                   argument(call, 0, "dataset"))
        elif name == "range" and len(call.args) == 3:
            yield call, call.args[2], call.args[0], None
    for node in s.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.step:
            yield node, node.slice.step, node.slice.lower, node.value


def share_of_rank(s: Script) -> Iterator[Finding]:
    """L2: the number of shares and the number of a share are of different worlds."""
    for place, count, number, _ in shares(s):
        of, which = s.kind(count), s.kind(number)
        if of == "size" and which == "local_rank":
            yield Finding(place.lineno,
                          "the data is divided among all ranks, and each takes the share of its local "
                          "rank: ranks of different hosts take the same share, and some shares are never "
                          "read",
                          "take the share of the rank: rank() in place of local_rank()")
        elif of == "local_size" and which == "rank":
            yield Finding(place.lineno,
                          "the data is divided among the ranks of one host, and each takes the share of "
                          "its rank among all hosts: ranks of other hosts have no share",
                          "divide it by size(); where each host has data of its own, take the share of "
                          "local_rank()")
        elif of in ("rank", "local_rank") and which in ("size", "local_size"):
            yield Finding(place.lineno, "the number of shares and the number of the share are exchanged",
                          "give the number of ranks first, then the rank")


def seeded(s: Script, call: ast.Call) -> bool:
    """The order that CALL makes is the same on all ranks, as far as can be known."""
    seed = argument(call, 1, "seed")
    if seed is not None and not (isinstance(seed, ast.Constant) and seed.value is None):
        return True
    return any("set_seed" in name or "set_random_seed" in name or "manual_seed" in name for name in s.called)


def done_before(s: Script, node: Optional[ast.expr], at: ast.AST, depth: int = 12) -> Iterator[str]:
    """What was done to the data set NODE before the call AT: the names of methods, the last one first."""
    if isinstance(node, ast.Call) and depth:
        name = method(node)
        shuffles = name == "shuffle" or name == "list_files" and not is_false(argument(node, 1, "shuffle"))
        if name == "repeat" or shuffles and not seeded(s, node):
            yield name
        if isinstance(node.func, ast.Attribute):
            yield from done_before(s, node.func.value, at, depth - 1)
    elif isinstance(node, ast.Name) and depth:
        earlier = [value for value in s.values(node)
                   if value and value.lineno < node.lineno and not s.exclusive(value, at)]
        if earlier:
            yield from done_before(s, max(earlier, key=lambda value: value.lineno), at, depth - 1)


def is_false(node: Optional[ast.expr]) -> bool:
    """NODE is the constant False."""
    return isinstance(node, ast.Constant) and node.value is False


def order_of_shares(s: Script) -> Iterator[Finding]:
    """L3: shard() after shuffle() or repeat()."""
    for place, _, number, data in shares(s):
        if not method_is(place, "shard") or not s.has(number, "rank", "local_rank"):
            continue
        before = list(done_before(s, data, place))
        if "shuffle" in before:
            yield Finding(place.lineno,
                          "shard() comes after shuffle(): each rank shuffles in an order of its own, so "
                          "the shares overlap, and some of the data is never read",
                          "call shard() before shuffle()")
        elif "list_files" in before:
            yield Finding(place.lineno,
                          "shard() comes after list_files(), which shuffles: each rank has an order of "
                          "its own, so some files are read twice and some never",
                          "give list_files() shuffle=False, and shuffle after shard()")
        elif "repeat" in before:
            yield Finding(place.lineno,
                          "shard() comes after repeat(): a rank's share is not the same in each pass over "
                          "the data",
                          "call shard() before repeat()")


def share_of_evaluation(s: Script) -> Iterator[Finding]:
    """L3: each rank judges by a share of the evaluation set, and the results stay apart."""
    if not (s.horovod or s.torch) or any(AVERAGES.search(word) for word in s.words):
        return
    for place, _, number, data in shares(s):
        if isinstance(place, ast.Subscript) or isinstance(place, ast.Call) and method(place) == "range":
            continue
        if not s.has(number, "rank", "local_rank") and not method_is(place, "DistributedSampler"):
            continue
        above = s.up.get(place)
        names = [part.id for part in ast.walk(data) if isinstance(part, ast.Name)] if data else []
        if isinstance(above, ast.Assign):
            names += [target.id for target in above.targets if isinstance(target, ast.Name)]
        if any(HELD_OUT.search(name) and "train" not in name for name in names):
            yield Finding(place.lineno,
                          "the evaluation set is divided among the ranks, and nothing averages what they "
                          "find: each rank's result is that of its own share",
                          "leave the set whole, or average the results over the ranks with allreduce()")


def method_is(node: ast.AST, name: str) -> bool:
    """NODE calls NAME."""
    return isinstance(node, ast.Call) and method(node) == name


def optimizers(s: Script) -> Iterator[Tuple[ast.Call, Optional[ast.expr]]]:
    """The optimizers that S makes, and their learning rates."""
    for call, name in s.calls:
        if re.match(r"torch\.optim\.[A-Z]\w*$", name):
            yield call, argument(call, 1, "lr")
        elif re.match(r"keras\.optimizers\.([a-z]\w*\.)*[A-Z]\w*$", name) and "Schedule" not in name and \
                "schedules" not in name:
            yield call, argument(call, 0, "learning_rate", "lr")
        elif re.match(r"tf\.train\.\w+Optimizer$", name):
            yield call, argument(call, 0, "learning_rate")


def distributed(s: Script) -> List[ast.Call]:
    """Calls that have gradients reduced by Horovod."""
    return [call for call, name in s.calls if re.match(r"hvd\.(\w+\.)*(Partial)?Distributed\w+$", name)]


def scales(s: Script, *operators: type) -> bool:
    """Whether a number of ranks is an operand of one of OPERATORS."""
    for node in s.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, operators) and \
                (s.has(node.left, "size", "local_size") or s.has(node.right, "size", "local_size")):
            return True
        if isinstance(node, ast.AugAssign) and isinstance(node.op, operators) and s.has(node.value, "size"):
            return True
    return False


def steps_of(call: ast.Call) -> Optional[ast.expr]:
    """How many steps CALL takes or names."""
    name = method(call)
    if name in ("fit", "fit_generator"):
        return argument(call, -1, "steps_per_epoch")
    if name == "StopAtStepHook":
        return argument(call, 1, "last_step") or argument(call, 0, "num_steps")
    return argument(call, 0, "count") if name == "take" else None


def work_of_ranks(s: Script) -> Iterator[Finding]:
    """L4: neither the learning rate nor the steps depend on the number of ranks.  For information."""
    if not s.horovod or not distributed(s):
        return
    warm = any("Warmup" in word or "dasum" in word for word in s.words)
    if not warm and not scales(s, ast.Mult):
        for call, rate in optimizers(s):
            of_user = isinstance(rate, ast.Attribute) and isinstance(rate.value, ast.Name)
            if rate is not None and (isinstance(s.constant(rate), float) or of_user):
                yield Finding(call.lineno,
                              "the learning rate does not depend on the number of ranks, whose batches "
                              "add up",
                              "multiply it by size(), unless the model is known not to need that", True)
    if scales(s, ast.Div, ast.FloorDiv):
        return
    for call, name in s.calls:
        number = s.constant(steps_of(call))
        if isinstance(number, int) and number > 1:
            yield Finding(call.lineno, f"every rank takes {number} steps, however many ranks there are",
                          "divide them by size(), unless more ranks are to read more data", True)


def written_files(s: Script) -> Iterator[Tuple[ast.Call, str, Optional[ast.expr]]]:
    """Checkpoints that S writes: the call, its words, the name of the file."""
    model = re.compile(r"(^|_)(model|net|network)$", re.I)
    for call, name in s.calls:
        target = call.func.value if isinstance(call.func, ast.Attribute) else None
        made = {s.name(value.func) for value in s.values(target) if isinstance(value, ast.Call)} \
            if target else set()
        last = method(call)
        if name == "torch.save" and not SHARDED & s.words:
            yield call, "torch.save()", argument(call, 1, "f")
        elif name == "keras.callbacks.ModelCheckpoint":
            yield call, "ModelCheckpoint", argument(call, 0, "filepath")
        elif name == "tf.train.MonitoredTrainingSession" and argument(call, -1, "checkpoint_dir"):
            yield call, "MonitoredTrainingSession", argument(call, -1, "checkpoint_dir")
        elif name.endswith("estimator.Estimator") and argument(call, 1, "model_dir"):
            yield call, "Estimator", argument(call, 1, "model_dir")
        elif last == "save" and made & SAVERS:
            yield call, "save()", argument(call, -1, "save_path")
        elif last in ("save_weights", "save") and s.tensorflow and \
                isinstance(target, (ast.Name, ast.Attribute)) and model.search(ast.unparse(target)):
            yield call, f"{last}()", argument(call, 0, "filepath", "path")


def of_some_ranks(s: Script, node: ast.AST, seen: Set[ast.AST]) -> bool:
    """Whether only some ranks may come to NODE.  In doubt, yes."""
    here = node
    while here in s.up:
        if any(s.names_rank(test) for _, _, test in s.branches(here)):
            return True
        while here in s.up and not isinstance(here, FUNCTIONS):
            for one in s.before(here) if isinstance(here, ast.stmt) else ():
                if isinstance(one, ast.If) and s.names_rank(one.test) and leaves(s, one):
                    return True
            here = s.up[here]
        if isinstance(here, FUNCTIONS):
            return here in seen or called_by_some(s, here, seen | {here})
    return False


def leaves(s: Script, test: ast.If) -> bool:
    """The branch of TEST ends what is behind it."""
    last = test.body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return s.name(last.value.func) in ("sys.exit", "exit", "quit", "os._exit")
    return isinstance(last, (ast.Return, ast.Continue, ast.Raise, ast.Break))


def called_by_some(s: Script, function: ast.AST, seen: Set[ast.AST]) -> bool:
    """Whether only some ranks may call FUNCTION.  In doubt, yes."""
    name = getattr(function, "name", "")
    above = s.up[function]
    if name == "__init__" and isinstance(above, ast.ClassDef):
        name = above.name
    uses = [node for node in s.nodes
            if isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == name]
    uses = [use for use in uses if not s.name(use).startswith(("torch.", "hvd.", "dist.", "keras.", "tf."))]
    if not uses:
        return name != "main"
    for use in uses:
        call = s.up[use]
        runs = isinstance(call, ast.Call) and (use is call.func or method(call) in ("run", "spawn", "launch"))
        if runs and not of_some_ranks(s, call, seen):
            return False
    return True


def writers_of_files(s: Script) -> Iterator[Finding]:
    """L5: all ranks write a checkpoint into one file."""
    if not (s.horovod or s.torch or s.accelerate):
        return
    for call, name, file in written_files(s):
        none = isinstance(file, ast.Constant) and file.value is None
        into_memory = re.search(r"buf|io|stream|bytes|memory", ast.unparse(file), re.I) if file and \
            name == "torch.save()" and isinstance(file, ast.Name) and "." not in ast.unparse(file) else None
        if none or into_memory or s.names_rank(file) or of_some_ranks(s, call, set()):
            continue
        yield Finding(call.lineno,
                      f"all ranks write the same checkpoint by {name}, and may spoil each other's file",
                      "let rank 0 write it alone: if rank() == 0")


def uses_first_gpu(call: ast.Call) -> bool:
    """CALL puts something on the GPU that has no number."""
    if any(keyword.arg == "device" and text_of(keyword.value) == "cuda" for keyword in call.keywords):
        return True
    if not isinstance(call.func, ast.Attribute) or call.keywords:
        return False
    if call.func.attr == "cuda":
        return not call.args
    return call.func.attr in ("to", "device") and len(call.args) == 1 and text_of(call.args[0]) == "cuda"


def choice_of_gpu(s: Script) -> Iterator[Finding]:
    """L6: a script that uses GPUs and chooses none."""
    if not (s.horovod or s.torch) or s.accelerate or CHOOSERS & s.words or "LOCAL_RANK" in s.strings:
        return
    if any("CUDA_VISIBLE_DEVICES" in text or re.match(r"(cuda|/?gpu|/device:GPU):", text, re.I)
           for text in s.strings):
        return
    uses = [call.lineno for call, _ in s.calls if uses_first_gpu(call)]
    if not uses and s.tensorflow and s.horovod and distributed(s):
        uses = [call.lineno for call, name in s.calls if name == "hvd.init"]
    if uses:
        yield Finding(min(uses),
                      "no rank chooses a GPU: where ranks see all GPUs of their host, as with "
                      "--gpu-visible node, all of them use the first one",
                      "choose the GPU of the local rank, or leave --gpu-visible as it is", True)


def same_beginning(s: Script) -> Iterator[Finding]:
    """L7: ranks begin with different parameters."""
    if not s.horovod or {"elastic", "load_model"} & s.words or \
            any("broadcast" in word.lower() for word in s.words):
        return
    wrapped = [call for call in distributed(s) if method(call) in ("DistributedOptimizer",
                                                                   "DistributedGradientTape")]
    same = any("seed" in name and not s.names_rank(argument(call, 0, "seed")) for call, name in s.calls)
    if wrapped and not same and TRAINS & {method(call) for call, _ in s.calls}:
        yield Finding(min(call.lineno for call in wrapped),
                      "the gradients are averaged, and nothing broadcasts the parameters: each rank "
                      "trains a model that began at values of its own",
                      "broadcast those of rank 0 before the training: broadcast_parameters(), "
                      "broadcast_variables() or BroadcastGlobalVariablesCallback(0)")


def averaged_gradients(s: Script) -> Iterator[Finding]:
    """L8: ranks train, each for itself."""
    if not TRAINS & {method(call) for call, _ in s.calls} or AVERAGING & s.words:
        return
    if s.horovod and not distributed(s) and not {"load_model", "lightning", "pytorch_lightning"} & s.words:
        if any(reduces_gradients(s, call) for call, name in s.calls if "reduce" in name or "gather" in name):
            return
        for call, _ in optimizers(s):
            yield Finding(call.lineno,
                          "the optimizer is not that of Horovod's interface: each rank trains a model of "
                          "its own",
                          "wrap it in DistributedOptimizer(), or the tape in DistributedGradientTape()")
        for call, name in s.calls:
            if method(call) == "compile" and text_of(argument(call, 0, "optimizer")):
                yield Finding(call.lineno,
                              "compile() makes an optimizer that is not that of Horovod's interface: each "
                              "rank trains a model of its own",
                              "make the optimizer, and wrap it in DistributedOptimizer()")
    elif s.torch and not s.horovod and not s.accelerate and not SHARDED & s.words and \
            not any(WRAPPED.search(word) for word in s.words):
        for call, _ in optimizers(s):
            yield Finding(call.lineno, "nothing averages the gradients: each rank trains a model of its own",
                          "wrap the model in DistributedDataParallel()")


def reduces_gradients(s: Script, call: ast.Call) -> bool:
    """CALL reduces gradients or parameters, as its words say."""
    place: ast.AST = call
    texts = [ast.unparse(call)]
    while place in s.up and place is not s.tree:
        place = s.up[place]
        if isinstance(place, (ast.For, ast.comprehension)):
            texts.append(ast.unparse(place.iter))
        texts.append(getattr(place, "name", "") or "")
    return any(re.search(r"grad|param|weight|average|sync", str(text), re.I) for text in texts)


def fixed_places(s: Script) -> Iterator[Tuple[ast.AST, str, Optional[ast.expr]]]:
    """What S sets in the environment: the place, the variable, its value."""
    for node in s.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            if s.name(target.value) == "os.environ":
                yield node, text_of(target.slice), node.value
        elif isinstance(node, ast.AugAssign) and s.name(node.target) == "os.environ":
            yield from of_dictionary(node.value)
    for call, name in s.calls:
        if name == "os.putenv" and len(call.args) == 2:
            yield call, text_of(call.args[0]), call.args[1]
        elif name == "os.environ.update":
            for keyword in call.keywords:
                yield keyword.value, keyword.arg or "", keyword.value
            for value in call.args:
                yield from of_dictionary(value)
        elif name == "os.environ.__setitem__" and len(call.args) == 2:
            yield call, text_of(call.args[0]), call.args[1]


def of_dictionary(node: ast.expr) -> Iterator[Tuple[ast.AST, str, Optional[ast.expr]]]:
    """The entries of the dictionary NODE."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            yield value, text_of(key), value
    elif isinstance(node, ast.Call) and method(node) == "dict":
        for keyword in node.keywords:
            yield keyword.value, keyword.arg or "", keyword.value


def fixed_names(s: Script) -> Iterator[Finding]:
    """L9: a port, or GPUs, that the script fixes."""
    ours = s.horovod or s.torch or s.accelerate
    for place, name, value in fixed_places(s):
        constant = s.constant(value)
        line = getattr(place, "lineno", 0)
        asked = any("environ" in ast.unparse(test) or "getenv" in ast.unparse(test)
                    for _, _, test in s.branches(place))
        if constant is None or asked:
            continue
        if name == "MASTER_PORT":
            yield Finding(line,
                          f"MASTER_PORT is set to {constant}, in place of the free port that runner "
                          "chooses: two jobs on one host meet at it",
                          "leave the line out, or use os.environ.setdefault() for starts without runner")
        elif name == "CUDA_VISIBLE_DEVICES" and ours and str(constant) not in ("", "-1"):
            yield Finding(line,
                          f"CUDA_VISIBLE_DEVICES is set to '{constant}' on every rank, whatever GPU runner "
                          "gave it",
                          "leave the line out; --gpus chooses GPUs")
    for call, name in s.calls:
        address = s.constant(argument(call, 1, "init_method")) if name == "dist.init_process_group" else None
        if isinstance(address, str) and re.match(r"tcp://.*:\d+$", address):
            yield Finding(call.lineno,
                          f"the ranks meet at {address}, in place of the address and the free port that "
                          "runner chooses",
                          "leave init_method out: the ranks then meet at MASTER_ADDR and MASTER_PORT")


def shares_gpu_memory(s: Script) -> Iterator[Finding]:
    """L11: TensorFlow takes the whole memory of a GPU."""
    if not (s.horovod and s.tensorflow) or "TF_FORCE_GPU_ALLOW_GROWTH" in s.strings:
        return
    if SPARING & s.words:
        return
    for place, number in chosen_gpus(s):
        if s.kind(number) and not (isinstance(place, ast.Call) and s.name(place.func).startswith("torch.")):
            yield Finding(place.lineno,
                          "each rank takes all memory of its GPU when it starts: ranks that share a GPU "
                          "fail",
                          "set allow_growth, or set_memory_growth(), if ranks may share a GPU", True)
            return


def rank_test(s: Script, test: ast.expr) -> Optional[bool]:
    """True if TEST chooses rank 0 or the like, False if the others, None if it isn't about ranks."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inside = rank_test(s, test.operand)
        return None if inside is None else not inside
    if isinstance(test, ast.BoolOp):
        chosen = [one for one in (rank_test(s, value) for value in test.values) if one is not None]
        return chosen[0] if chosen and isinstance(test.op, ast.And) else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        sides = [test.left, test.comparators[0]]
        ranks = [side for side in sides if is_rank(s, side)]
        other = [side for side in sides if not is_rank(s, side)]
        if len(ranks) != 1 or not isinstance(s.constant(other[0]), int) or s.constant(other[0]) == -1:
            return None
        return True if isinstance(test.ops[0], ast.Eq) else \
            False if isinstance(test.ops[0], (ast.NotEq, ast.Gt)) else None
    if isinstance(test, ast.Attribute) and test.attr in ("is_main_process", "is_local_main_process"):
        return True if s.name(test).startswith("accelerator.") else None
    if isinstance(test, ast.Name):
        values = s.values(test)
        found = [rank_test(s, value) for value in values
                 if isinstance(value, (ast.Compare, ast.UnaryOp, ast.Attribute))]
        if len(values) == len(found) == 1 and found[0] is not None:
            return found[0]
    return False if is_rank(s, test) else None


def is_rank(s: Script, node: ast.expr) -> bool:
    """NODE is a rank, or bears the name of one and is nothing else that is known."""
    if s.kind(node) in ("rank", "local_rank"):
        return True
    word = last_name(node)
    return word in ("rank", "local_rank", "global_rank", "world_rank") and not s.kind(node)


def whole_collective(s: Script, call: ast.Call) -> bool:
    """CALL is a collective of all ranks: no group is given."""
    if not COLLECTIVES.match(s.name(call.func)) or "_async" in method(call):
        return False
    if any(keyword.arg is None or "group" in keyword.arg or keyword.arg == "process_set"
           for keyword in call.keywords):
        return False
    words = {part.id for arg in call.args for part in ast.walk(arg) if isinstance(part, ast.Name)}
    return len(call.args) < 3 and not any("group" in word or word == "pg" for word in words)


def collectives_in(s: Script, function: str) -> bool:
    """The function of that name, of which there is one, calls a collective on every rank."""
    found = [node for node in s.nodes if isinstance(node, ast.FunctionDef) and node.name == function]
    return len(found) == 1 and any(
        whole_collective(s, call) and s.scope(call) is found[0] and not any(True for _ in s.branches(call))
        for call, _ in s.calls)


def collectives_of_some(s: Script) -> Iterator[Finding]:
    """L12: a collective that some ranks don't call."""
    for call, name in s.calls:
        own = whole_collective(s, call)
        if not own and not (isinstance(call.func, ast.Name) and collectives_in(s, call.func.id)):
            continue
        tests = [at for at, _, test in s.branches(call) if rank_test(s, test) is not None]
        if not tests and own and after_leaving(s, call):
            yield Finding(call.lineno,
                          f"{method(call)}() waits for all ranks, and some of them have left this function "
                          "before",
                          "call it on every rank")
        if not tests or paired(s, call, tests[0]):
            continue
        what = f"{method(call)}() waits for all ranks" if own else f"{method(call)}() has a collective in it"
        yield Finding(call.lineno, f"{what}, and only some ranks call it: they hang",
                      "call it on every rank, outside of the test of the rank")


def paired(s: Script, call: ast.Call, test: ast.AST) -> bool:
    """Whether other ranks may call the same in another branch, or behind one that ends the function."""
    if isinstance(test, ast.If) and leaves(s, test) and \
            any(method(other) == method(call) and s.scope(other) is s.scope(call) and
                other.lineno > (test.end_lineno or 0) for other, _ in s.calls):
        return True
    return any(other is not call and method(other) == method(call) and s.scope(other) is s.scope(call) and
               (at is not test or side == "orelse" or s.exclusive(other, call))
               for other, _ in s.calls for at, side, branch in s.branches(other)
               if rank_test(s, branch) is not None and (at is not test or s.exclusive(other, call)))


def after_leaving(s: Script, call: ast.Call) -> bool:
    """Some ranks have left the function before CALL."""
    here: ast.AST = call
    while here in s.up and not isinstance(here, FUNCTIONS):
        for one in s.before(here) if isinstance(here, ast.stmt) else ():
            if isinstance(one, ast.If) and rank_test(s, one.test) is not None and \
                    isinstance(one.body[-1], ast.Return) and not one.orelse and \
                    not any(COLLECTIVES.match(s.name(part.func)) or method(part) == "join"
                            for part in ast.walk(one) if isinstance(part, ast.Call)):
                return True
        here = s.up[here]
    return False


def sleeps_of_some(s: Script) -> Iterator[Finding]:
    """L12: ranks that sleep until rank 0 is likely to be done."""
    for call, name in s.calls:
        if name != "time.sleep" or not (s.horovod or s.torch or s.accelerate):
            continue
        loops, here = False, s.up[call]
        while here in s.up and not isinstance(here, FUNCTIONS):
            loops = loops or isinstance(here, (ast.While, ast.For))
            here = s.up[here]
        for at, side, test in s.branches(call):
            zero = rank_test(s, test)
            if zero is not None and zero == (side == "orelse") and not loops and \
                    not (isinstance(at, ast.If) and leaves(s, at)):
                yield Finding(call.lineno, "the other ranks sleep while rank 0 works, which may take longer",
                              "call barrier() on every rank, after the work of rank 0")
                break


RULES: Final[Tuple[Callable[[Script], Iterator[Finding]], ...]] = (
    gpu_of_rank, share_of_rank, order_of_shares, share_of_evaluation, work_of_ranks, writers_of_files,
    choice_of_gpu, same_beginning, averaged_gradients, fixed_names, shares_gpu_memory, collectives_of_some,
    sleeps_of_some)


def keys_in_image(text: str) -> Iterator[Finding]:
    """L10: a Dockerfile that makes a private key, which each user of the image then has."""
    line, end = 0, ""
    lines = text.splitlines()
    while line < len(lines):
        start, instruction = line, lines[line]
        while (instruction.endswith("\\") or lines[line].lstrip().startswith("#")) and line + 1 < len(lines):
            line += 1
            if not lines[line].lstrip().startswith("#"):
                instruction = instruction.rstrip("\\") + "\n" + lines[line]
        line += 1
        here = re.search(r"<<-?[\"']?(\w+)", instruction)
        while here and line < len(lines) and end != here.group(1):
            end = lines[line].strip()
            instruction += "\n" + end
            line += 1
        end = ""
        at = instruction.find("ssh-keygen")
        if re.match(r"\s*RUN\b", instruction.lstrip("#\n "), re.I) and at >= 0 and \
                not re.search(r"ssh-keygen[\"',\s]+-[ARlFHyi]", instruction):
            yield Finding(start + 1 + instruction.count("\n", 0, at),
                          "ssh-keygen makes a key while the image is built: all who have the image have "
                          "the same private key",
                          "mount a key when the container starts, as a secret")


def findings(text: bytes, path: str) -> List[Finding]:
    """All that is found in TEXT, the contents of the file PATH, by line."""
    if re.search(r"(^|/)((Docker|Container)file[^/]*|[^/]*\.(docker|container)file)$", path, re.I):
        found = set(keys_in_image(text.decode(errors="replace")))
    else:
        script = Script(text, path)
        found = {finding for rule in RULES for finding in rule(script)}
    return sorted(found)


def fail(path: str, why: str, hint: str) -> int:
    """Print an error as runner's are.  Returns the status."""
    shown = "".join(c if c.isprintable() else "?" for c in f"'{path}': {why}")
    print(f"runner: --lint {shown}\nhint: {hint}", file=sys.stderr)
    return 2


def main(paths: Sequence[str]) -> int:
    """Print what is found in PATHS.  Returns the status."""
    status = 0
    if not paths:
        print("runner: --lint: no file\nhint: name the script: runner --lint train.py", file=sys.stderr)
        return 2
    for path in paths:
        try:
            with open(path, "rb") as file:
                found = findings(file.read(), path)
        except OSError as e:
            status = fail(path, f"cannot read it: {e.strerror}", "name a Python script that you may read")
            continue
        except SyntaxError as e:
            where = f" (line {e.lineno})" if e.lineno else ""
            status = fail(path, f"cannot parse it: {e.msg}{where}",
                          f"check it by `{os.path.basename(sys.executable)} -m py_compile`")
            continue
        except (ValueError, RecursionError, MemoryError) as e:
            status = fail(path, f"cannot parse it: {e}", "name a Python script")
            continue
        shown = "".join(c if c.isprintable() else "?" for c in path)
        for each in found:
            print(f"{shown}:{each.line}: {'note: ' * each.note}{each.what}\n    fix: {each.fix}")
            status = status or int(not each.note)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
