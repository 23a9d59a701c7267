"""What torch.distributed waits for: Works, and Futures of those that were asked for one."""
from __future__ import annotations

import ctypes
import threading
from datetime import timedelta
from typing import Any, Callable, List, Sequence, cast

import torch
import torch.distributed as dist

from .. import clib, library
from ..errors import HorovodInternalError
from .cuda import Device, Gpu
from .process_group_world import as_failure, failure


Future = torch.futures.Future[List[torch.Tensor]]


class Done(dist.Work):
    """What was done before the call returned."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> Exception | None:
        return None

    def result(self) -> List[torch.Tensor]:
        return []

    def get_future(self) -> Future:
        future: Future = torch.futures.Future()
        future.set_result([])
        return future


class Work(dist.Work):
    """OPERATION of the library, whose outputs are TENSORS.  FINISH, once it is done, puts there what it left
    elsewhere.  SOURCE, a c_int: the rank in the group that a message came from.

    One thread at a time may use an operation: the one that waits, or, once there is a Future, the thread of
    Completer or Starter.
    """

    def __init__(self, operation: library.Operation, tensors: List[torch.Tensor],
                 finish: Callable[[], object] | None = None, source: ctypes.c_int | None = None) -> None:
        super().__init__()
        self.operation: library.Operation | None = operation
        self.tensors, self.finish, self.source = tensors, finish, source
        self.error: Exception | None = None
        self.future: Future | None = None
        self.base: Any = None
        self.waiter: Waiter | None = None  # once there is a Future

    def _end(self, error: Exception | None = None) -> None:
        """The operation has come to its end."""
        self.operation, self.error = None, error
        if error is None and self.finish is not None:
            self.finish()
        self.finish = None

    def _wait_here(self, limit_s: float | None) -> bool:
        """False: it is not done after LIMIT_S seconds."""
        error = None
        assert self.operation is not None
        try:
            if not self.operation.wait(limit_s):
                return False
        except Exception as e:
            error = as_failure(e)
        self._end(error)
        return True

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until it is done, at most TIMEOUT (a timedelta).  DistBackendError: what went wrong."""
        if self.operation is not None:
            seconds = timeout.total_seconds() if timeout is not None else 0
            limit_s = seconds if seconds > 0 else None
            done = self._wait_here(limit_s) if self.waiter is None else self.waiter.wait(self, limit_s)
            if not done:
                raise failure(f"the operation is not done after {limit_s} s; it goes on")
        if self.error is not None:
            raise self.error
        if self.waiter is starter:
            cast(Future, self.future).wait()  # so does the stream of this thread
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if self.operation is not None and self.future is None and self.operation.is_done():
            self._wait_here(None)
        return self.operation is None

    def is_success(self) -> bool:
        return self.is_completed() and self.error is None

    def exception(self) -> Exception | None:
        return self.error

    def result(self) -> List[torch.Tensor]:
        return self.tensors

    def source_rank(self) -> int:
        return self.source.value if self.source is not None else -1

    _source_rank = source_rank

    def get_future(self) -> Future:
        """Of the tensors.  It does not wait."""
        if self.future is None:
            gpu = _gpu_of(self.operation)
            self.base = torch.futures.Future(devices=gpu.devices() if gpu else _devices_of(self.tensors))
            # Only an exception in a callback makes a Future fail for those who wait in C++.
            future = self.base.then(self._value)
            if self.is_completed():
                self.base.set_result(None)
            else:
                self.future = future
                self.waiter = starter if gpu else completer
                self.waiter.add(self)
            self.future = future
        return self.future

    def _value(self, _: object) -> List[torch.Tensor]:
        if self.error is not None:
            raise self.error
        return self.tensors


def _gpu_of(operation: library.Operation | None) -> Gpu | None:
    return cast(Gpu, operation.place) if isinstance(operation, library.OnDevice) else None


def _devices_of(tensors: Sequence[torch.Tensor]) -> List[Device]:
    """Those that a Future of TENSORS has to know."""
    return list({tensor.device for tensor in tensors if tensor.is_cuda})


class Waiter:
    """A thread that waits for the operations of which somebody has a Future."""

    def __init__(self) -> None:
        self.changed, self.stopped = threading.Condition(), False
        self.works: List[Work] = []
        self.thread: threading.Thread | None = None

    def add(self, work: Work) -> None:
        """WORK has a Future now."""
        with self.changed:
            self.works.append(work)
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="berth-futures", daemon=True)
                self.thread.start()
            self._ring()

    def wait(self, work: Work, limit_s: float | None) -> bool:
        """Until WORK is done.  False: it is not after LIMIT_S."""
        with self.changed:
            return self.changed.wait_for(lambda: work.operation is None, limit_s)

    def stop(self) -> None:
        """End the thread.  Futures of what still runs are never done."""
        with self.changed:
            self.stopped, thread = True, self.thread
            self._ring()
        if thread is not None:
            thread.join()

    def _ring(self) -> None:
        self.changed.notify_all()

    def _next(self) -> List[Work]:
        """Those for which it waits; none when it has been stopped.  CHANGED is held."""
        self.changed.wait_for(lambda: self.works or self.stopped)
        return [] if self.stopped else list(self.works)

    def _run(self) -> None:
        raise NotImplementedError

    def _forget(self, work: Work) -> None:
        with self.changed:
            self.works.remove(work)
            self.changed.notify_all()
        work.base.set_result(None)
        work.base = None


class Starter(Waiter):
    """Of operations on devices.  A Future is done when its operation has begun, and comes behind it there."""

    def _run(self) -> None:
        while True:
            with self.changed:
                works = self._next()
            if not works:
                return
            for work in works:  # each for 1 ms at most, since they may begin in any order
                with cast(Gpu, _gpu_of(work.operation)).for_futures():
                    if work._wait_here(0):
                        self._forget(work)


class Completer(Waiter):
    """Of the others.  While it is in libberth, it hears of one more by a message of this rank to itself."""
    TAG = 2 ** 64 - 1

    def __init__(self) -> None:
        super().__init__()
        self.is_inside = False  # in berth_wait_any()
        self.bell: library.Operation | None = None  # the message that it waits for
        self.nothing = ctypes.c_uint8()  # where that message would go

    def _ring(self) -> None:
        super()._ring()
        if self.is_inside:
            self.is_inside = False
            try:
                self._message(kind=clib.SEND)
            except HorovodInternalError:
                pass  # the world has ended, and so have all operations

    def _message(self, **fields: Any) -> library.Operation:
        at = library.get().berth_rank()
        return library.submit(None, library.fields(type=clib.U8, root=at, tag=self.TAG, timeout_ms=-1,
                                                   **fields))

    def _run(self) -> None:
        while True:
            with self.changed:
                works = self._next()
                if not works:
                    return
                self._hang_bell()
                self.is_inside = True
            self._wait_any(works)

    def _hang_bell(self) -> None:
        if self.bell is None:
            try:
                self.bell = self._message(kind=clib.RECV, out=ctypes.addressof(self.nothing))
            except HorovodInternalError:
                pass  # the world has ended, and so have all operations

    def _wait_any(self, works: Sequence[Work]) -> None:
        """Until one of WORKS is done, or the bell has rung."""
        operations = [*(cast(library.Operation, work.operation) for work in works),
                      *([self.bell] if self.bell else [])]
        requests = (ctypes.c_void_p * len(operations))(*[operation.request for operation in operations])
        which = ctypes.c_size_t(len(requests))
        result = library.get().berth_wait_any(requests, len(requests), -1, ctypes.byref(which))
        if which.value == len(requests):
            library.check(result)
        operation = operations[which.value]
        operation.request = operation.kept = None
        error = _error_of(result)
        if operation is self.bell:
            self.bell = None
            return
        work = works[which.value]
        work._end(error)
        with self.changed:
            self.is_inside = False
        self._forget(work)


def _error_of(result: int) -> Exception | None:
    try:
        library.check(result)
    except Exception as e:
        return as_failure(e)
    return None


completer, starter = Completer(), Starter()
