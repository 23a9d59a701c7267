"""What berth.torch does for CUDA alone (berth/torch/cuda.py), with a stand-in for the calls of torch.cuda
that it makes.  The ranks of a launcher are not needed.
"""
from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from berth import build, clib
from berth.torch import cuda
from berth.torch import tensors as adapter


class Stream:
    """Of torch.cuda: WITHIN are those that this thread is on."""
    within: list[Stream] = []

    def __init__(self, device: int) -> None:
        self.device = device
        self.cuda_stream = 1000 + id(self) % 1000


class Owner:
    """A tensor, whose memory is that of the streams that have recorded it."""

    def __init__(self) -> None:
        self.recorded: list[Stream] = []

    def record_stream(self, stream: Stream) -> None:
        self.recorded.append(stream)


@pytest.fixture
def gpu(monkeypatch):
    """GPU 3, of a torch whose current stream there is the last one of Stream.within."""
    main = Stream(3)

    @contextlib.contextmanager
    def within(stream):
        Stream.within.append(stream)
        yield
        Stream.within.pop()

    monkeypatch.setattr(Stream, "within", [main])
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream.within[-1])
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: Stream.within[-1].cuda_stream,
                        raising=False)
    return cuda.Gpu(3)


def test_the_stream_is_the_calling_threads(gpu):
    assert (gpu.memory, gpu.device) == (clib.CUDA, 3)
    assert gpu.stream() == Stream.within[0].cuda_stream
    with gpu.for_futures():
        assert gpu.stream() == Stream.within[1].cuda_stream != Stream.within[0].cuda_stream
        first = Stream.within[1]
    with gpu.for_futures():
        assert Stream.within[1] is first  # one for all


def test_memory_of_what_comes_is_of_a_stream_of_its_own(gpu, monkeypatch):
    made_on = []
    empty = torch.empty

    def noted(*args, **named):
        made_on.append(Stream.within[-1])
        return empty(*args, **named)

    monkeypatch.setattr(torch, "empty", noted)
    array = adapter.plain(torch.ones(4, 5))
    for rows in (7, 0):
        made, address = gpu.make(array, rows)
        assert made.shape == (rows, 5) and made.data_ptr() == address
    assert made_on[0] is made_on[1] is gpu.apart and made_on[0] is not Stream.within[0]


def test_who_gets_it_uses_it_on_their_stream(gpu):
    owner = Owner()
    gpu.taken(owner)
    assert owner.recorded == [Stream.within[0]]


def test_a_future_knows_the_device(gpu):
    assert gpu.devices() == [torch.device("cuda", 3)]


def test_tensors_go_as_they_are_where_the_user_wants_it(monkeypatch):
    there = SimpleNamespace(is_cuda=True, get_device=lambda: 2)
    monkeypatch.setattr(build, "cuda_built", lambda: True)
    assert cuda.place_of(there) is cuda.place_of(there)
    assert cuda.place_of(there).device == 2
    assert cuda.place_of(torch.ones(1)) is None
    monkeypatch.setattr(build, "cuda_built", lambda: False)
    assert cuda.place_of(there) is None
