"""berth.elastic without a framework, and worlds that follow.  Each rank of a job runs these in one order:
runner -np N python3 -m pytest lib/python/tests
"""
import ctypes
import os
import time

import pytest

import berth as hvd
from berth import basics, clib, elastic, handles, library, operations

of_runner = pytest.mark.skipif("BERTH_AGENT" not in os.environ, reason="runner did not start it")


@pytest.fixture(autouse=True)
def world():
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def may_grow(monkeypatch):
    """runner would start ranks again."""
    monkeypatch.setattr(basics, "_grows", True)


def state_of(**values):
    """A state that notes what is called."""
    called = []

    class State(elastic.ObjectState):
        def sync(self):
            called.append("sync")
            super().sync()

        def restore(self):
            called.append("restore")
            super().restore()

        def reset(self):
            called.append("reset")

    state = State(**values)
    state.register_reset_callbacks([lambda: called.append("callback")])
    return state, called


def interrupted(state, called, times, skip_sync=False):
    @elastic.run
    def train(state):
        called.append("train")
        state.epoch += 1
        if called.count("train") <= times:
            raise hvd.HostsUpdatedInterrupt(skip_sync)
        return state.epoch

    return train(state)


# ---- worlds ----

@of_runner
def test_a_world_that_follows():
    rank, size = hvd.rank(), hvd.size()
    told = []
    basics.tell_of_sets(lambda number, handle, is_there: told.append((number, is_there)))
    mine = hvd.ProcessSet([0])
    if size > 1:
        hvd.add_process_set(mine)
    ever = hvd.global_process_set
    epoch = basics._get().epoch
    del told[:]
    basics.change()
    assert told == [(0, False)] + ([(1, False)] if size > 1 else [])
    basics._told.pop()
    assert basics._get().epoch > epoch and (hvd.rank(), hvd.size()) == (rank, size)
    assert mine.process_set_id is None and mine.handle is None
    assert (ever.process_set_id, ever.ranks) == (0, list(range(size)))
    assert basics.ranks_of_sets() == {0: list(range(size))}
    assert hvd.allgather_object(rank) == list(range(size))
    if size > 1:
        assert hvd.add_process_set(mine).process_set_id == 1
    assert basics.changed() == 0


@of_runner
def test_operations_end_with_their_world():
    """What is in flight is forgotten: its name is free, and its handle gives nothing."""
    array = (ctypes.c_double * 1)(1.0)
    at = ctypes.addressof(array)

    def begin():
        work = array, library.fields(clib.ALLREDUCE, clib.F64, clib.SUM, at, at, 1, b"x"), array
        return operations.begin(work, hvd.global_process_set)

    handle = begin() if hvd.rank() == 0 else None
    basics.change()
    assert handles.synchronize(handle) is None
    handles.synchronize(begin())
    assert array[0] >= hvd.size()


def test_without_a_world():
    hvd.shutdown()
    for call in (basics.change, basics.changed, lambda: basics.elastic(True)):
        with pytest.raises(ValueError, match="has not been initialized"):
            call()


def test_ranks_may_come_where_runner_starts_them_again(monkeypatch):
    for restarts, may in (("0", False), ("", False), ("two", False), ("2", basics.is_of_runner())):
        hvd.shutdown()
        monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", restarts)
        hvd.init()
        assert basics.may_grow() == may


# ---- run ----

def test_one_call():
    state, called = state_of(epoch=hvd.rank())

    @elastic.run
    def train(state, more, key=None):
        """What it does."""
        return state.epoch, more, key

    assert train(state, 2, key=3) == (0, 2, 3) and called == ["sync"]
    assert train.__doc__ == "What it does."


def test_without_runner_it_runs_once(capfd, monkeypatch):
    monkeypatch.setattr(basics, "_has_launcher", False)
    state, called = state_of(epoch=0)
    with pytest.raises(hvd.HostsUpdatedInterrupt):
        interrupted(state, called, 1)
    assert called == ["sync", "train"]
    said = capfd.readouterr().err
    assert (said.count("\n"), "runs once" in said) == ((1, True) if hvd.rank() == 0 else (0, False))


@of_runner
@pytest.mark.parametrize("grows", [False, True])
def test_the_function_is_called_in_each_world(grows, monkeypatch):
    monkeypatch.setattr(basics, "_grows", grows)
    state, called = state_of(epoch=hvd.rank())
    assert interrupted(state, called, 2) == 3
    assert called == ["sync", "train"] + ["reset", "callback", "sync", "train"] * 2


@of_runner
def test_sync_is_left_out_if_nobody_wants_it():
    state, called = state_of(epoch=0)
    assert interrupted(state, called, 1, skip_sync=True) == 2
    assert called == ["sync", "train", "reset", "callback", "train"]
    del called[:]
    assert interrupted(state, called, 1, skip_sync=hvd.rank() != 0) == 4
    assert called == ["sync", "train", "reset", "callback", "sync", "train"]


def test_errors_that_are_no_loss(monkeypatch):
    """Those of the library are raised at once; others may be a loss of which the news come yet."""
    monkeypatch.setattr(elastic, "NEWS_S", 0.2)
    state, called = state_of(epoch=0)

    def failing(result):
        @elastic.run
        def train(state):
            error = hvd.HorovodInternalError("no loss")
            error.result = result
            raise error

        began = time.monotonic()
        with pytest.raises(hvd.HorovodInternalError, match="no loss"):
            train(state)
        hvd.allgather_object(0)  # so that one is not faster by the other
        return time.monotonic() - began

    assert failing(clib.MISMATCH) < 0.2
    if basics.is_of_runner():
        for result in (None, clib.ABORTED, clib.TIMEOUT):
            assert failing(result) >= 0.2
    assert called == ["sync"] * (4 if basics.is_of_runner() else 1)


@of_runner
def test_a_loss(monkeypatch):
    """Restored to what was committed, in the next world."""
    state, called = state_of(epoch=hvd.rank())
    error = hvd.HorovodInternalError("rank 7 has ended")
    error.result = clib.PEER_LOST

    @elastic.run
    def train(state):
        called.append(("train", state.epoch))
        state.epoch += 10
        if len(called) == 2:
            state.commit()
            state.epoch += 100
            raise error
        return state.epoch

    assert train(state) == 20
    assert called == ["sync", ("train", 0), "restore", "reset", "callback", "sync", ("train", 10)]


@of_runner
def test_a_loss_that_is_heard_of_later(monkeypatch):
    state, called = state_of(epoch=0)
    news = []
    monkeypatch.setattr(basics, "changed", lambda: len(news) > 3 or news.append(0) or 0)

    @elastic.run
    def train(state):
        if called.count("sync") == 1:
            raise hvd.HorovodInternalError("of a framework")
        return 7

    assert train(state) == 7 and len(news) == 4


@of_runner
def test_errors_of_sync_and_of_callbacks_count_too():
    state, called = state_of(epoch=0)
    error = hvd.HorovodInternalError("rank 7 has ended")
    error.result = clib.PEER_LOST
    fails = ["once"]

    def callback():
        if called.count("reset") == 1:
            raise error

    state.register_reset_callbacks([callback])
    synced = state.sync

    def sync():
        if fails:
            raise fails.pop() and error
        synced()

    state.sync = sync
    assert elastic.run(lambda state: 7)(state) == 7
    assert called == ["restore", "reset", "callback", "restore", "reset", "callback", "sync"]


def test_after_the_function_no_rank_starts_again(monkeypatch):
    said = []
    monkeypatch.setattr(basics, "elastic", said.append)
    state, _ = state_of(epoch=0)
    assert elastic.run(lambda state: 7)(state) == 7 and said == [True, False]
    with pytest.raises(KeyError):
        elastic.run(lambda state: {}["x"])(state)
    assert said == [True, False] * 2


@of_runner
def test_all_that_had_the_state_are_lost(capfd, may_grow, monkeypatch):
    state, called = state_of(epoch=0)
    error = hvd.HorovodInternalError("rank 7 has ended")
    error.result = clib.PEER_LOST
    synced = state.sync
    fails = [error]

    def sync():
        if fails:
            raise fails.pop()
        synced()

    state.sync = sync
    elastic.run(lambda state: 7)(state)
    assert ("it begins anew" in capfd.readouterr().err) == (hvd.rank() == 0)


# ---- commit ----

@of_runner
@pytest.mark.parametrize("why", [0, 1, 2])
def test_ranks_agree_on_the_step(why, may_grow, monkeypatch):
    """The last rank hears of it first."""
    state, _ = state_of(epoch=0)
    monkeypatch.setattr(basics, "changed", lambda: why if hvd.rank() == hvd.size() - 1 else 0)
    state.epoch = 5
    if why:
        with pytest.raises(hvd.HostsUpdatedInterrupt) as e:
            state.commit()
        assert e.value.skip_sync == (why == 1)
    else:
        state.commit()
    state.epoch = 6
    state.restore()
    assert state.epoch == 5


def test_commit_does_nothing_more_where_no_rank_may_come(monkeypatch):
    monkeypatch.setattr(basics, "_grows", False)
    monkeypatch.setattr(library, "run", None)
    monkeypatch.setattr(basics, "changed", lambda: 2)
    state_of(epoch=0)[0].commit()
