"""Tensors of GPUs as libberth's arrays: which device and stream they are on, and what keeps their memory.

This has not run on a GPU yet.  So such tensors are copied to the host and back, unless BERTH_DEVICE=nccl is
set in the environment.  A test has CPU tensors in their place, and a stand-in of a GPU below libberth.
"""
from __future__ import annotations

from typing import ContextManager, Dict, List, Tuple, Union, cast

import torch

from .. import build, clib, operations
from ..operations import Array


Device = Union[int, str, torch.device]  # as torch.futures.Future has it


class Gpu(operations.Place[torch.Tensor]):
    """A GPU, by torch's number of it, which is CUDA's."""
    __slots__ = ("apart", "behind")

    def __init__(self, device: int) -> None:
        super().__init__(clib.CUDA, device)
        # The memory of what comes is of a stream on which nothing else is.  Memory of another stream may be
        # in use there by what libberth's operation does not wait for.
        self.apart: torch.cuda.Stream | None = None
        # What the thread of Futures does comes behind the operations, and holds up nothing else.
        self.behind: torch.cuda.Stream | None = None

    def stream(self) -> int:
        return torch._C._cuda_getCurrentRawStream(self.device)

    def make(self, array: Array[torch.Tensor], rows: int) -> Tuple[torch.Tensor, int]:
        tensor = array[0]
        if self.apart is None:
            self.apart = torch.cuda.Stream(self.device)
        with torch.cuda.stream(self.apart):
            made = torch.empty((rows, *array[4][1:]), dtype=tensor.dtype, device=tensor.device)
        return made, made.data_ptr()

    def taken(self, owner: torch.Tensor) -> None:
        owner.record_stream(torch.cuda.current_stream(self.device))

    def devices(self) -> List[Device]:
        """Of a Future of its tensors: who waits for it has their stream wait."""
        return [torch.device("cuda", self.device)]

    def for_futures(self) -> ContextManager[object]:
        """The calling thread's work is on a stream of Futures."""
        if self.behind is None:
            self.behind = torch.cuda.Stream(self.device)
        return cast(ContextManager[object], torch.cuda.stream(self.behind))


_gpus: Dict[int, Gpu] = {}


def place_of(tensor: torch.Tensor) -> Gpu | None:
    """Of a TENSOR that goes to libberth as it is, on a GPU; else None."""
    if not tensor.is_cuda or not build.cuda_built():
        return None
    device = tensor.get_device()
    gpu = _gpus.get(device)
    if gpu is None:
        gpu = _gpus[device] = Gpu(device)
    return gpu
