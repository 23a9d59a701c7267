"""The world: who this rank is, and process sets.

Average, Sum, Adasum, Min, Max and Product are the numbers of the reductions, for OP.  global_process_set is
the ProcessSet of all ranks, which operations take if they get no other.

Before init() and after shutdown() a call that asks for the world raises ValueError.
"""
from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import sys
import threading
from typing import Any, Callable, Iterable, Protocol, Sequence, TypeVar

from . import clib, library

# Horovod's numbers of its reductions.
Average, Sum, Adasum, Min, Max, Product = range(6)

_world: clib.World | None = None  # since init(); a child of fork() may ask what its parent is


def _get() -> clib.World:
    if _world is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _world


def is_initialized() -> bool:
    """Whether init() was called, and shutdown() not after it.

    >>> hvd.is_initialized()
    True
    """
    return _world is not None


def rank() -> int:
    """The number of this rank in the world, from 0.

    >>> hvd.rank()
    0
    """
    return int(_get().rank)


def size() -> int:
    """The number of ranks in the world.

    >>> hvd.size()
    1
    """
    return int(_get().ranks)


def local_rank() -> int:
    """The number of this rank on its host, from 0.

    >>> hvd.local_rank()
    0
    """
    return int(_get().local_rank)


def local_size() -> int:
    """The number of ranks on this host.

    >>> hvd.local_size()
    1
    """
    return int(_get().local_size)


def cross_rank() -> int:
    """The number of this host among those that have this local rank, from 0.

    >>> hvd.cross_rank()
    0
    """
    return int(_get().cross_rank)


def cross_size() -> int:
    """The number of hosts that have this local rank.

    >>> hvd.cross_size()
    1
    """
    return int(_get().cross_size)


# ---- process sets ----

class Communicator(Protocol):
    """What init() needs of a communicator of mpi4py."""

    def Get_rank(self) -> int:
        """The number of this rank in it."""

    def Get_size(self) -> int:
        """The number of its ranks."""

    def allgather(self, thing: bytes) -> list[bytes]:
        """The THINGs of all ranks, in their order."""


def _ranks_of(comm: Any) -> list[int]:
    """Of COMM, a communicator of mpi4py, in MPI's world."""
    from mpi4py import MPI
    group = comm.Get_group()
    return list(MPI.Group.Translate_ranks(group, range(group.Get_size()), MPI.COMM_WORLD.Get_group()))


class ProcessSet:
    """Ranks that do operations together.  RANKS_OR_COMM: ranks of the world, in any order, each once; or a
    communicator of mpi4py.  It can be used once add_process_set() has added it.

    >>> hvd.ProcessSet([2, 0])
    ProcessSet(process_set_id=None, ranks=[0, 2], mpi_comm=None)
    """

    def __init__(self, ranks_or_comm: Iterable[int] | Communicator) -> None:
        is_comm = hasattr(ranks_or_comm, "Get_group")
        self.mpi_comm = ranks_or_comm if is_comm else None
        ranks: Any = _ranks_of(ranks_or_comm) if is_comm else ranks_or_comm
        self.ranks = sorted(int(r) for r in ranks)
        self.process_set_id: int | None = None  # until it is added
        self.handle: int | None = None  # libberth's; None: all ranks

    def _added(self) -> None:
        if self.process_set_id is None:
            raise ValueError("The process set is not added yet, or was removed: use hvd.add_process_set().")

    def usable(self) -> int | None:
        """Its handle; an error if it is not added, or if there is no world."""
        number = self.process_set_id
        if number is None:
            _get()
            self._added()
        elif number and _sets.get(number) is not self:  # a number that the caller has written
            process_set_of(number)
            raise ValueError(f"The process set {number} is another one: use that of hvd.add_process_set().")
        return self.handle

    def included(self) -> bool:
        """Whether this rank is in it.  ValueError: it is not added."""
        self._added()
        return rank() in self.ranks

    def rank(self) -> int:
        """This rank's place in the set, from 0.  ValueError: this rank is not in it."""
        if not self.included():
            raise ValueError(f"Rank {rank()} is not in the process set {self.ranks}.")
        return self.ranks.index(rank())

    def size(self) -> int:
        """The number of its ranks.  ValueError: it is not added."""
        self._added()
        return len(self.ranks)

    def __repr__(self) -> str:
        return (f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, "
                f"mpi_comm={self.mpi_comm})")


global_process_set = ProcessSet([])
_sets: dict[int, ProcessSet] = {}  # id: set
Tell = Callable[[int, "int | None", bool], None]
_told: list[Tell] = []


def tell_of_sets(tell: Tell) -> None:
    """TELL(id, handle, whether it is there) is to be called for each process set that comes or goes, and now
    for those that are there.
    """
    _told.append(tell)
    for number, process_set in _sets.items():
        tell(number, process_set.handle, True)


def _tell(number: int, handle: int | None, is_there: bool) -> None:
    for tell in _told:
        tell(number, handle, is_there)


def process_set_of(number: int) -> ProcessSet:
    """The process set whose process_set_id is NUMBER.  ValueError: there is none."""
    _get()
    if number not in _sets:
        raise ValueError(f"There is no process set {number}: it is not added yet, or was removed.")
    return _sets[number]


def ranks_of_sets() -> dict[int, list[int]]:
    """{process_set_id: ranks} of those that are there."""
    return {number: list(process_set.ranks) for number, process_set in _sets.items()}


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Add PROCESS_SET, a ProcessSet or the ranks of one.  All ranks of the world call it.  Returns the set.

    ValueError: it is added already, there is one of the same ranks, or a rank is not in the world.

    >>> hvd.add_process_set([0])  # alone, rank 0 is all ranks
    Traceback (most recent call last):
    ValueError: There is a process set of the ranks [0] already.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    _get()
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is added already.")
    if any(process_set.ranks == other.ranks for other in _sets.values()):
        raise ValueError(f"There is a process set of the ranks {process_set.ranks} already.")
    ranks = (ctypes.c_int * len(process_set.ranks))(*process_set.ranks)
    handle = ctypes.c_void_p()
    library.check(library.get().berth_set_add(ranks, len(ranks), ctypes.byref(handle)))
    # The same on all ranks: all of them add and remove the same sets, in one order.
    number = next(n for n in itertools.count(1) if n not in _sets)
    process_set.handle, process_set.process_set_id = handle.value, number
    _sets[number] = process_set
    _tell(number, handle.value, True)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove PROCESS_SET.  All ranks of the world call it.  Returns False if there is no such set to remove.

    >>> hvd.remove_process_set(hvd.ProcessSet([0]))
    False
    """
    _get()
    if not process_set.process_set_id or _sets.get(process_set.process_set_id) is not process_set:
        return False
    library.check(library.get().berth_set_remove(process_set.handle))
    del _sets[process_set.process_set_id]
    _tell(process_set.process_set_id, None, False)
    process_set.handle = process_set.process_set_id = None
    return True


# ---- begin and end ----

def _bootstrap(comm: Communicator) -> clib.Bootstrap:
    """Of COMM, an intracommunicator of mpi4py."""
    def allgather(_: object, mine: int, of_all: int, n: int) -> int:
        try:
            parts = b"".join(comm.allgather(ctypes.string_at(mine, n)))
        except Exception:  # no exception gets through C
            return 1
        ctypes.memmove(of_all, parts, len(parts))
        return 0

    return clib.made(clib.Bootstrap, rank=comm.Get_rank(), ranks=comm.Get_size(),
                     allgather=clib.ALLGATHER_CALL(allgather))


_joins = False


@clib.LOG_CALL  # type: ignore[misc]
def _hear(_: object, level: int, text: bytes) -> None:
    """What the library says while init() lasts; later, errors say it, or the launcher does."""
    if _joins and level <= clib.LOG_WARNING:
        print("berth:", text.decode(errors="replace"), file=sys.stderr)


def _enter() -> None:
    """The library is in a world: the names of this module are those of its ranks."""
    global _world
    world = clib.made(clib.World)
    library.check(library.get().berth_world(ctypes.byref(world)))
    _world = world
    global_process_set.ranks, global_process_set.process_set_id = list(range(world.ranks)), 0
    _sets.clear()
    _sets[0] = global_process_set


def _leave_sets() -> None:
    """Process sets end with their world."""
    for number, process_set in _sets.items():
        process_set.handle = process_set.process_set_id = None
        _tell(number, None, False)
    _sets.clear()


Function = TypeVar("Function", bound=Callable[[], None])
_at_leave: list[Callable[[], None]] = []
_at_shutdown: list[Callable[[], None]] = []


def at_leave(forget: Function) -> Function:
    """shutdown() and change() are to call FORGET, after all operations of the world have ended."""
    _at_leave.append(forget)
    return forget


def at_shutdown(forget: Function) -> Function:
    """shutdown() is to call FORGET, after all operations have ended."""
    _at_shutdown.append(forget)
    return forget


def init(comm: Communicator | None = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Join the other ranks.  Called again, it does nothing.

    COMM: a communicator of mpi4py, whose ranks are the world; None: those that the launcher started.
    PROCESS_SETS: a list of ProcessSet to be added; "dynamic" is allowed, and always so.
    ValueError: COMM is no communicator.  ImportError: there is no libberth.  HorovodInternalError: a rank
    did not come.

    >>> hvd.init()
    """
    global _joins, _has_launcher, _grows
    if is_initialized():
        return
    config = clib.made(clib.Config, log=_hear)
    if comm is not None:
        if not hasattr(comm, "allgather"):
            raise ValueError("init(comm=...) takes a communicator of mpi4py; for a part of the ranks, "
                             "add a process set.")
        config = clib.made(clib.Config, log=_hear, bootstrap=_bootstrap(comm))
    _joins = True
    try:
        library.check(library.get().berth_init(ctypes.byref(config)))
    finally:
        _joins = False
    _has_launcher = comm is None and "BERTH_AGENT" in os.environ
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "")
    _grows = _has_launcher and restarts.isdecimal() and int(restarts) > 0
    _enter()
    for process_set in process_sets if isinstance(process_sets, (list, tuple)) else []:
        add_process_set(process_set)


def shutdown() -> None:
    """Leave the world.  Operations that still run end with an error.  init() may follow.

    >>> hvd.shutdown()
    >>> hvd.is_initialized()
    False
    """
    global _world
    if not is_initialized():
        return
    _world = None
    _leave_sets()
    library.check(library.get().berth_shutdown())
    for forget in [*_at_leave, *_at_shutdown]:
        forget()
    library.collect()


# ---- worlds that follow ----

_asked = clib.World(ctypes.sizeof(clib.World))  # by changed(): made() takes 10 us
_asked_at = ctypes.byref(_asked)
_has_launcher = False  # runner started the ranks of this world, and tells them of changes
_grows = False  # may_grow()
_changes = False  # a thread is in berth_change()


def is_of_runner() -> bool:
    """Whether the ranks of this world are those that runner started: change() is for them."""
    return _has_launcher


def may_grow() -> bool:
    """Whether ranks may come to a later world: runner starts those that fail again.  The same on all ranks:
    runner gives each of them, also those that start again, the number of its --restarts.
    """
    return _grows


def changed() -> int:
    """Why change() is due: 0, it is not; clib.RANKS_LOST or RANKS_WAIT: see berth_world(3).
    Ranks may differ in when they hear of it.
    """
    _get()
    library.check(library.get().berth_world(_asked_at))
    return int(_asked.changed)


def elastic(can: bool) -> None:
    """Whether this rank will call change() when it is due.  If all ranks do, runner's --restarts starts a
    rank that fails again while the others go on.
    """
    _get()
    if not _changes:  # an interrupt has left change(), which has the library
        library.check(library.get().berth_elastic(int(can)))


def change() -> None:
    """Leave the world, and join the next one: of all ranks that are left, which call it too, and of those
    that wait.  rank(), size() and all that they decide are others then.  Operations that still run end with
    an error, and process sets end.

    HorovodInternalError: this rank can't, as one of mpirun's, and is still in the old world; or, if
    is_initialized() is false then, it is in none.
    """
    global _changes
    _get()
    ended = threading.Event()
    errors: list[Exception] = []

    def work() -> None:
        try:
            library.check(library.get().berth_change(None))
        except Exception as e:
            errors.append(e)
        ended.set()

    # berth_change() waits in one piece, and a wait for an event can be interrupted.
    _changes = True
    threading.Thread(target=work, name="berth change", daemon=True).start()
    while not ended.wait(library.SLICE_MS / 1000):
        pass
    _changes = False
    if errors and library.get().berth_rank() >= 0:
        raise errors[0]
    if errors:  # a process without a world could not init()
        shutdown()
        raise errors[0]
    _leave_sets()
    for forget in _at_leave:
        forget()
    library.collect()
    _enter()


_process = os.getpid()


@atexit.register
def _shutdown_at_exit() -> None:
    if os.getpid() == _process and not _changes:  # that would be waited for
        shutdown()
