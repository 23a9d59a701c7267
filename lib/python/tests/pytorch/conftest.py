"""With STANDIN_TENSORS=1 in the environment tensors are taken for those of a GPU: libberth hands their memory
to a stand-in of NCCL (tests/standin), whose streams work behind the program's back.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Tuple

import torch

from berth import library
from berth.torch import collectives, cuda, process_group
from berth.torch import tensors as adapter

NON_BLOCKING = 1


class StandIn(cuda.Gpu):
    """A GPU whose memory is the host's."""
    __slots__ = ("cuda", "queue")

    def __init__(self) -> None:
        super().__init__(0)
        self.cuda, self.queue = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        context = ctypes.c_void_p()
        assert self.cuda.cuInit(0) == 0
        assert self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self.cuda.cuCtxPushCurrent_v2(context) == 0
        assert self.cuda.cuStreamCreate(ctypes.byref(self.queue), NON_BLOCKING) == 0

    def stream(self) -> int:
        return self.queue.value or 0

    def make(self, array, rows: int) -> Tuple[torch.Tensor, int]:
        return adapter.empty_like(array, rows)

    def taken(self, owner: torch.Tensor) -> None:
        pass

    def devices(self) -> list[torch.device]:
        return []  # this torch knows no other than the CPU

    def for_futures(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def come_to_end(self) -> None:
        """Until its stream has done all that it has: the host is about to look."""
        assert self.cuda.cuStreamSynchronize(self.queue) == 0


def put_in_place(gpu: StandIn) -> None:
    """Each tensor of the collectives is GPU's from now on."""
    def plain(tensor: torch.Tensor):
        return (*adapter.plain(tensor)[:5], gpu)

    waited = library.OnDevice.wait

    def wait(self, limit_s: float | None = None) -> bool:
        done = waited(self, limit_s)
        gpu.come_to_end()
        return done

    def allreduce(self, tensors, opts=None, *args, **named):
        """Without its shorter way for CPU tensors."""
        arguments = args if opts is None else (opts, *args)
        return self.allreduce_coalesced(process_group._list(tensors), *arguments, **named)

    collectives._arrays._plain = plain
    adapter.place_of = lambda tensor: gpu
    process_group.ProcessGroup.allreduce = allreduce
    library.OnDevice.wait = wait


if os.environ.get("STANDIN_TENSORS"):
    put_in_place(StandIn())
