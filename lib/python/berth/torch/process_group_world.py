"""The ranks of torch.distributed as libberth's: the world, and a set of its own for each group."""
from __future__ import annotations

import ctypes
import os
from typing import List, Sequence

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .. import clib, library
from ..errors import HorovodInternalError


class Exchange:
    """An allgather over a STORE of torch, of all RANKS, as a bootstrap of libberth."""

    def __init__(self, store: c10d.Store, rank: int, ranks: int) -> None:
        turn = store.add(f"berth/turn/{rank}", 1)  # a store may remain when its group is made anew
        self.store, self.rank, self.ranks, self.prefix = store, rank, ranks, f"berth/{turn}"
        self.calls = 0
        self.error: BaseException | None = None

    def _set(self, key: str, value: bytes) -> None:
        self.store.set(key, value)  # type: ignore[arg-type]  # torch's own types lack bytes

    def allgather(self, mine: bytes) -> List[bytes]:
        """The list of what all ranks gave, bytes each.  Rank 0 puts it together: two keys for each rank."""
        self.calls += 1
        prefix = f"{self.prefix}/{self.calls}"
        if self.rank:
            self._set(f"{prefix}/{self.rank}", mine)
            whole = self.store.get(f"{prefix}/all")
        else:
            parts = [mine] + [self.store.get(f"{prefix}/{r}") for r in range(1, self.ranks)]
            whole = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
            self._set(f"{prefix}/all", whole)
        parts, at = [], 0
        while at < len(whole):
            end = at + 4 + int.from_bytes(whole[at:at + 4], "big")
            parts.append(whole[at + 4:end])
            at = end
        return parts

    def part(self) -> None:
        """Rank 0, with whose process the store may end, waits until the others have read all."""
        if self.rank:
            self._set(f"{self.prefix}/part/{self.rank}", b"")
        else:
            self.store.wait([f"{self.prefix}/part/{r}" for r in range(1, self.ranks)])

    def bootstrap(self) -> clib.Bootstrap:
        """For berth_init() and berth_set_make()."""
        def allgather(_: object, mine: int, of_all: int, n: int) -> int:
            try:
                parts = b"".join(self.allgather(ctypes.string_at(mine, n)))
                if len(parts) != n * self.ranks:
                    return 2
                ctypes.memmove(of_all, parts, len(parts))
            except BaseException as e:  # no exception gets through C
                self.error = e
                return 1
            return 0

        return clib.made(clib.Bootstrap, rank=self.rank, ranks=self.ranks,
                         allgather=clib.ALLGATHER_CALL(allgather))

    def check(self, result: int) -> None:
        """After a call that took the bootstrap: raise what went wrong.  Rank 0 does not wait if it failed."""
        if result != clib.OK and self.error is not None:
            raise self.error
        if self.rank or result == clib.OK:
            self.part()
        checked(result)


def checked(result: int) -> None:
    """library.check(), with the error of torch.distributed."""
    try:
        library.check(result)
    except HorovodInternalError as e:
        raise failure(e) from None


def failure(text: object) -> dist.DistBackendError:
    """TEXT as an error of torch.distributed."""
    return dist.DistBackendError(f"berth: {text}")


def as_failure(error: Exception) -> Exception:
    """ERROR, or what stands for it in torch.distributed."""
    return failure(error) if isinstance(error, HorovodInternalError) else error


# ---- the world ----

def _offer(rank: int, ranks: int) -> str:
    """What this rank could be in without a bootstrap, as text: the world that it is in, or its launcher's."""
    berth = library.get()
    if berth.berth_rank() >= 0:
        return f"in {berth.berth_rank()} of {berth.berth_size()}"
    given = os.environ.get("BERTH_RANK"), os.environ.get("BERTH_SIZE")
    if os.environ.get("BERTH_AGENT") and given == (str(rank), str(ranks)):
        return f"job {os.environ.get('BERTH_JOB')}"
    return ""


def _wrong(offers: Sequence[str]) -> str | None:
    """A sentence on OFFERS of all ranks that make no world, or None."""
    inside = [offer.startswith("in ") for offer in offers]
    for rank, offer in enumerate(offers):
        if inside[rank] and offer != f"in {rank} of {len(offers)}":
            return (f"rank {rank} of {len(offers)} of torch.distributed is rank {offer[3:]} of berth: give "
                    "both the same ranks, or call init_process_group() first")
    if any(inside) and not all(inside):
        return (f"berth is initialized, but not on rank {inside.index(False)}: initialize it on all ranks "
                "before init_process_group(), or on none")
    return None


def join(exchange: Exchange) -> None:
    """Be in a world of the ranks of EXCHANGE, which are all of torch.distributed: in the one that there is,
    that of berth's launcher, or a new one.  leave() undoes it.
    """
    offers = [offer.decode() for offer in exchange.allgather(_offer(exchange.rank, exchange.ranks).encode())]
    wrong = _wrong(offers)
    if wrong:
        exchange.part()
        raise failure(wrong)
    config = None
    if not offers[0] or (offers[0].startswith("job ") and len(set(offers)) > 1):
        config = ctypes.byref(clib.made(clib.Config, bootstrap=exchange.bootstrap()))
    exchange.check(library.get().berth_init(config))


def join_again() -> None:
    """One more user of the world, for a group of some ranks."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if (library.get().berth_rank(), library.get().berth_size()) != (rank, ranks):
        raise failure("a group of some ranks needs a world of all: make a group of all ranks with the "
                      'backend "berth" first, or call berth.torch.init()')
    checked(library.get().berth_init(None))


def leave() -> None:
    """Undo join() or join_again()."""
    library.get().berth_shutdown()
    library.collect()


def make_set(exchange: Exchange) -> int | None:
    """A set of libberth of the ranks of EXCHANGE, in their order."""
    made = ctypes.c_void_p()
    exchange.check(library.get().berth_set_make(ctypes.byref(exchange.bootstrap()), ctypes.byref(made)))
    return made.value


def split_set(parent: int | None, color: int, key: int) -> int | None:
    """The set of those of PARENT with this COLOR, or None with color -1.  All of PARENT call it."""
    made = ctypes.c_void_p()
    checked(library.get().berth_set_split(parent, color, key, ctypes.byref(made)))
    return made.value
