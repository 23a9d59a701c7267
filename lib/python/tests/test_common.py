"""What all frameworks have in common.  Each rank of a job runs these in one order:
runner -np N python3 -m pytest lib/python/tests
"""
import ctypes
import os
import signal
import threading
import time

import pytest

import berth as hvd
from berth import clib, library, objects

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


@pytest.fixture(autouse=True)
def world():
    hvd.init()
    yield
    hvd.shutdown()


def test_who_this_rank_is():
    assert (hvd.rank(), hvd.size()) == (RANK, SIZE)
    assert hvd.local_rank() == int(os.environ.get("LOCAL_RANK", 0))
    assert hvd.local_size() == int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)


def test_before_init_and_after_shutdown():
    hvd.init()  # does nothing
    hvd.shutdown()
    for call in (hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size,
                 lambda: hvd.add_process_set([0]), lambda: hvd.broadcast_object(1)):
        with pytest.raises(ValueError, match="has not been initialized"):
            call()
    assert not hvd.is_initialized()
    hvd.shutdown()
    hvd.init()
    assert hvd.is_initialized() and hvd.size() == SIZE


def test_a_forked_child_may_ask():
    pid = os.fork()
    if not pid:
        os._exit(0 if (hvd.rank(), hvd.size()) == (RANK, SIZE) else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("thing", [None, 1.5, "x" * 300000, {"a": [1, 2], "b": (3,)}],
                         ids=["None", "float", "long", "dict"])
def test_broadcast_object(thing):
    for root in range(SIZE):
        assert hvd.broadcast_object((thing, hvd.rank()), root, name="thing") == (thing, root)


def test_allgather_object_of_different_sizes():
    of = ["x" * (r * 70000) for r in range(SIZE)]
    assert hvd.allgather_object(of[hvd.rank()]) == of


class Middle:
    """libberth's calls, with a host on the way that changes the byte AT of all data above 1 KiB: what
    BERTH_NET_SECURE=heads does not authenticate.
    """

    def __init__(self, at):
        self.at, self.get, self.fields = at, library.get, library.fields

    def _change(self, out, made, count):
        if count > 1024:
            ctypes.memset((out or made.value) + self.at, ord("y"), 1)

    def run(self, kept, operation):
        library.run(kept, operation)
        d = library.describe(operation)
        self._change(d.out, None, d.count)

    def submit(self, kept, *parts):
        operation, wait = library.submit(kept, *parts), library.Operation.wait
        d = library.describe(parts[-1])

        class Changed:
            def wait(_):
                wait(operation)
                self._change(d.out, d.made.contents, d.count)
        return Changed()


def test_bytes_that_were_changed_are_not_unpickled(monkeypatch):
    if SIZE == 1:
        pytest.skip("nothing comes from another rank")
    if RANK:
        monkeypatch.setattr(objects, "library", Middle(2000))
        monkeypatch.setattr(objects.pickle, "loads", lambda data: pytest.fail("they were"))
    for call in (hvd.broadcast_object, hvd.allgather_object):
        if RANK:
            with pytest.raises(hvd.HorovodInternalError, match="'it': the bytes from rank 0 .* SHA-256"):
                call("x" * 3000, name="it")
        else:
            call("x" * 3000, name="it")


@pytest.mark.parametrize("size,rank", [(1, 0), (25, 24), (26, 0), (26, 25), (1000, 30)])
def test_the_lengths_and_hashes_of_many_ranks_go_in_parts_that_are_authenticated(size, rank):
    heads, parts = objects._heads(b"x" * 40, size, rank, {"kind": clib.ALLGATHER})
    descs = [library.describe(part) for part in parts]
    assert len(heads) == 40 * size and sum(d.count for d in descs) == 40
    of_all = [d.out_counts[r] for d in descs for r in range(size)]
    assert sorted(of_all) == [0] * (len(of_all) - size) + [40] * size
    for i, d in enumerate(descs):
        assert sum(d.out_counts[:size]) <= 1024 and d.out == ctypes.addressof(heads) + 1000 * i
        assert d.count == d.out_counts[rank]


def test_another_root_is_an_error():
    if SIZE == 1:
        pytest.skip("one rank has one root")
    with pytest.raises(hvd.HorovodInternalError, match="from rank 0; .*from rank 1"):
        hvd.broadcast_object(1, 0 if hvd.rank() == 0 else 1)


def test_process_sets():
    if SIZE == 1:
        pytest.skip("one rank has one process set")
    some = hvd.add_process_set([SIZE - 1])
    assert some.process_set_id == 1 and some.ranks == [SIZE - 1] and some.size() == 1
    assert some.included() == (hvd.rank() == SIZE - 1)
    if some.included():
        assert some.rank() == 0
        assert hvd.allgather_object("y", process_set=some) == ["y"]
        assert hvd.broadcast_object("z", SIZE - 1, process_set=some) == "z"
    else:
        with pytest.raises(ValueError, match="not in the process set"):
            some.rank()
        with pytest.raises(ValueError):
            hvd.allgather_object("y", process_set=some)
    with pytest.raises(ValueError, match="already"):
        hvd.add_process_set(some)
    with pytest.raises(ValueError, match="already"):
        hvd.add_process_set([SIZE - 1])
    assert hvd.remove_process_set(some) and not hvd.remove_process_set(some)
    with pytest.raises(ValueError, match="not added"):
        some.size()


def test_all_ranks_are_a_set():
    ours = hvd.global_process_set
    assert (ours.ranks, ours.process_set_id, ours.rank()) == (list(range(SIZE)), 0, RANK)
    with pytest.raises(ValueError, match="already"):
        hvd.add_process_set(range(SIZE))
    assert not hvd.remove_process_set(ours)


def test_process_sets_from_the_start():
    hvd.shutdown()
    if SIZE == 1:
        hvd.init(process_sets="dynamic")
        return
    one = hvd.ProcessSet([0])
    hvd.init(process_sets=[one])
    assert one.process_set_id == 1 and one.included() == (hvd.rank() == 0)


def test_a_world_of_another_communicator():
    class Alone:
        """What libberth needs of a communicator of mpi4py."""

        def Get_rank(self):
            return 0

        def Get_size(self):
            return 1

        def allgather(self, thing):
            return [thing]

    hvd.shutdown()
    hvd.init(comm=Alone())
    assert (hvd.rank(), hvd.size()) == (0, 1)
    hvd.shutdown()
    with pytest.raises(ValueError, match="mpi4py"):
        hvd.init(comm=[0])


def test_a_wait_can_be_interrupted():
    """Rank 0 waits for the others, who come once it has been interrupted."""
    if SIZE == 1:
        pytest.skip("one rank waits for nobody")
    path = f"/tmp/berth-test-{os.environ['BERTH_JOB']}"
    if hvd.rank():
        while not os.path.exists(path):
            time.sleep(0.01)
        hvd.allgather_object(1)
    else:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            hvd.allgather_object(1)
        assert time.monotonic() - began < 3  # 0.4 where nothing else runs
        with open(path, "w", encoding="ascii"):
            pass
    assert hvd.allgather_object(hvd.rank(), name="after") == list(range(SIZE))
    if not hvd.rank():
        os.unlink(path)
