"""berth.torch.elastic.  Each rank of a job runs these in one order:
runner -np N python3 -m pytest lib/python/tests
"""
import copy
import os
import random

import pytest
import torch

import berth.torch as hvd
from berth import basics, clib
from berth.torch import elastic
from berth.torch.elastic import state as states
from berth.torch.optimizer import DistributedOptimizer

of_runner = pytest.mark.skipif("BERTH_AGENT" not in os.environ, reason="runner did not start it")


@pytest.fixture(autouse=True)
def world():
    hvd.init()
    torch.manual_seed(hvd.rank())
    yield
    hvd.shutdown()


# ---- samplers ----

def shares(sampler):
    return hvd.allgather_object(list(sampler))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("n", [0, 1, 12, 13])
def test_shares(n, shuffle):
    """All samples, in shares of one length; some twice where they do not divide."""
    sampler = elastic.ElasticSampler(range(n), shuffle=shuffle, seed=3)
    of_all = shares(sampler)
    each = -(-n // hvd.size())
    assert len(sampler) == each and all(len(share) == each for share in of_all)
    assert set().union(*of_all) == set(range(n))
    if not shuffle and n:
        assert of_all[0][0] == 0 and all(share == sorted(share) for share in of_all if n == 12)


def test_epochs_and_seeds_decide_the_order():
    def order(seed, epoch):
        sampler = elastic.ElasticSampler(range(50), seed=seed)
        sampler.set_epoch(epoch)
        return shares(sampler)

    assert order(1, 0) == order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_record():
    """A batch counts on all ranks, and the last one as a full one."""
    n = 4 * hvd.size()
    sampler = elastic.ElasticSampler(range(n))
    of_all = shares(sampler)
    sampler.record_batch(0, 3)
    assert sampler.processed_num == 3 * hvd.size() and shares(sampler) == of_all
    sampler.reset()
    assert len(sampler) == 1
    assert set().union(*shares(sampler)) == set(range(n)).difference(*(share[:3] for share in of_all))
    sampler.record_batch(0, 3)
    sampler.reset()
    assert len(sampler) == 0 and list(sampler) == []
    sampler.set_epoch(1)
    assert (sampler.processed_num, sampler.epoch, len(sampler)) == (0, 1, 4)


def test_the_order_is_horovods():
    """A checkpoint says how many samples were seen, not which: Random(seed + epoch) says that."""
    sampler = elastic.ElasticSampler(range(7), seed=3)
    sampler.load_state_dict({"epoch": 2, "processed_num": 2})
    order = list(range(7))
    random.Random(5).shuffle(order)
    assert sampler.remaining_indices == order[2:]


def test_state_of_a_sampler():
    """Checkpoints of Horovod since 0.23, and those before, in which the samples stand themselves."""
    sampler = elastic.ElasticSampler(range(10), shuffle=False)
    sampler.load_state_dict({"epoch": 2, "processed_num": 3})
    saved = copy.deepcopy(sampler.state_dict())
    assert saved == {"epoch": 2, "processed_num": 3} and sampler.remaining_indices == list(range(3, 10))
    sampler.load_state_dict({"epoch": 3, "processed_indices": {1, 2}})
    assert (sampler.epoch, sampler.processed_num) == (3, 2)
    assert sampler.remaining_indices == [0, *range(3, 10)]
    sampler.record_batch(0, 1)
    saved = copy.deepcopy(sampler.state_dict())
    sampler.set_epoch(4)
    assert sampler.state_dict() == {"epoch": 4, "processed_num": 0} and len(sampler.remaining_indices) == 10
    sampler.load_state_dict(saved)
    assert sampler.remaining_indices == [0, *range(3, 10)][hvd.size():]


def test_batches_after_restore_are_recorded():
    """As Horovod's own test of its sampler has it, with one rank: committed, restored, recorded again."""
    sampler = elastic.ElasticSampler(range(8 * hvd.size()))
    loader = torch.utils.data.DataLoader(range(8 * hvd.size()), batch_size=2, sampler=sampler)
    state = elastic.TorchState(sampler=sampler)
    state.sync()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for i, _ in enumerate(loader):
            sampler.record_batch(i, 2)
            assert sampler.processed_num == 2 * hvd.size() * (i + 1)
        assert len(loader) == 4
    assert sampler.processed_num == len(sampler) * hvd.size() and sum(1 for _ in loader) == 4
    sampler.set_epoch(2)
    for i in range(4):
        sampler.record_batch(i, 2)
        if i == 1:
            state.commit()
    state.restore()
    assert sampler.processed_num == 4 * hvd.size()
    sampler.record_batch(2, 2)
    state.commit()
    state.sync()
    assert sampler.processed_num == 6 * hvd.size()
    assert len(sampler) == 2 and sum(1 for _ in loader) == 1
    sampler.set_epoch(3)
    assert len(sampler) == 8 and sum(1 for _ in loader) == 4


def test_what_all_ranks_have_recorded():
    sampler = elastic.ElasticSampler(range(8 * hvd.size()))
    loader = torch.utils.data.DataLoader(range(8 * hvd.size()), batch_size=2, sampler=sampler)
    state = elastic.TorchState(sampler=sampler)
    state.sync()
    seen = []
    for i, batch in enumerate(loader):
        seen += batch.tolist()
        sampler.record_batch(i, 2)
        if i == 1:
            break
    state.commit()
    sampler.record_batch(2, 2)
    state.restore()
    state.sync()
    everything = set(sum(hvd.allgather_object(seen), []))
    assert sampler.processed_num == len(everything) == 4 * hvd.size()
    rest = sum(hvd.allgather_object([x for batch in loader for x in batch.tolist()]), [])
    assert sorted(rest) == sorted(set(range(8 * hvd.size())) - everything) and len(loader) == 2
    state.reset()
    assert len(loader) == 2


# ---- states ----

def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def equal(a, b):
    return all(map(torch.equal, a, b))


@pytest.mark.parametrize("wrapped", [False, True])
def test_torch_state(wrapped):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (1 + hvd.rank()), momentum=0.9)
    if wrapped:
        optimizer = DistributedOptimizer(optimizer)
    state = elastic.TorchState(model, optimizer, batch=20 + hvd.rank(), epoch=10 + hvd.rank(),
                               seen=[hvd.rank()])
    assert state.model is model and state.optimizer is optimizer and state.batch == 20 + hvd.rank()
    state.sync()
    assert (state.batch, state.epoch, state.seen) == (20, 10, [0])
    assert optimizer.param_groups[0]["lr"] == 0.1
    begin = weights(model)
    assert all(equal(begin, other) for other in hvd.allgather_object(begin))

    def work():
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        state.batch += 1
        state.seen.append(state.batch)

    work()
    assert not equal(weights(model), begin)
    for _ in range(2):
        state.restore()
        assert equal(weights(model), begin) and (state.batch, state.seen) == (20, [0])
        state.seen.append("more")
    state.restore()
    assert not optimizer.state_dict()["state"]
    work()
    state.commit()
    kept = weights(model)
    work()
    state.restore()
    assert equal(weights(model), kept) and (state.batch, state.seen) == (21, [0, 21])
    assert len(optimizer.state_dict()["state"]) == 2


def test_another_model_takes_its_place():
    first, second = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    state = elastic.TorchState(model=first, other=None)
    state.model = second
    begin = weights(second)
    second.weight.data.fill_(7)
    state.restore()
    assert state.model is second and equal(weights(second), begin)
    assert state.other is None and state.optimizer is None
    state.other = 5
    state.commit()
    state.other = 6
    state.restore()
    assert state.other == 5


def test_object_state():
    state = elastic.ObjectState(lambda thing: {**thing, "a": 100}, lambda: 0, a=1, b=2)
    state.a, state.b = 10, 20
    state.commit()
    state.a = 50
    state.restore()
    assert (state.a, state.b) == (10, 20)
    state.sync()
    assert (state.a, state.b) == (100, 20)
    state.a = 3
    state.restore()
    assert state.a == 100


def test_callbacks_and_updates():
    called = []
    state = elastic.TorchState(a=1)
    assert isinstance(state, elastic.State)
    state.register_reset_callbacks([lambda: called.append(1), lambda: called.append(2)])
    state.check_host_updates()
    state.commit()
    assert not called
    state.on_reset()
    assert called == [1, 2]
    for call in (elastic.State().save, elastic.State().restore, elastic.State().sync):
        with pytest.raises(NotImplementedError):
            call()


def test_handlers_of_the_callers():
    class Thing:
        def __init__(self):
            self.value = 1

        def state_dict(self):
            return {"value": self.value}

        def load_state_dict(self, values):
            self.value = values["value"]

    class Handler(states.StateHandler):
        def sync(self):
            self.value.value = hvd.broadcast_object(self.value.value)
            self.save()

    before = states.get_handler_registry()
    states.set_handler_registry([(Thing, Handler), *before])
    try:
        thing = Thing()
        state = elastic.TorchState(thing=thing)
        thing.value = 5 + hvd.rank()
        state.sync()
        assert thing.value == 5
        thing.value = 9
        state.restore()
        assert thing.value == 5
    finally:
        states.set_handler_registry(before)


# ---- run, and worlds that follow ----

def test_run():
    calls = []

    @elastic.run
    def train(state, more, key=None):
        """What it does."""
        calls.append((state.epoch, more, key))
        if more == "fail":
            error = hvd.HorovodInternalError("mismatch")
            error.result = clib.MISMATCH
            raise error
        return "result"

    state = elastic.TorchState(epoch=hvd.rank())
    assert train(state, 2, key=3) == "result" and calls == [(0, 2, 3)]
    assert train.__doc__ == "What it does."
    with pytest.raises(hvd.HorovodInternalError, match="mismatch"):
        train(state, "fail")
    assert len(calls) == 2


@of_runner
def test_a_model_in_two_worlds():
    model = torch.nn.Linear(2, 2).double()
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), op=hvd.Sum)
    sampler = elastic.ElasticSampler(range(8 * hvd.size()))
    state = elastic.TorchState(model, optimizer, sampler=sampler, batch=0)
    error = hvd.HorovodInternalError("rank 7 has ended")
    error.result = clib.PEER_LOST
    grads = []

    @elastic.run
    def train(state):
        grads.append([p.grad for p in model.parameters()])
        for _ in sampler:
            model(torch.ones(1, 2).double() * (state.batch + 1)).sum().backward()
            if len(grads) == 1 and state.batch == 3:
                raise error  # while gradients are reduced
            optimizer.step()
            state.batch += 1
            sampler.record_batch(0, 1)
            state.commit()
            optimizer.zero_grad()
        return weights(model)

    end = train(state)
    assert grads[1] == [None, None] and state.batch == 8 and len(sampler) == 5
    assert sampler.remaining_indices and sampler.processed_num == 8 * hvd.size()
    torch.manual_seed(0)  # rank 0's model
    alone = torch.nn.Linear(2, 2).double()
    step = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for batch in range(8):
        step.zero_grad()
        (alone(torch.ones(1, 2).double() * (batch + 1)).sum() * hvd.size()).backward()
        step.step()
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(end, weights(alone)))


@of_runner
@pytest.mark.parametrize("sparse", [False, True])
def test_ranks_agree_anew_on_what_is_sparse(sparse):
    """A rank that comes has not agreed: each name and each operation is as at the beginning."""
    table = torch.nn.Embedding(4, 2, sparse=sparse)
    optimizer = DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), op=hvd.Sum)
    table.weight.data.fill_(0)
    for agreed in range(2):
        if agreed:
            basics.change()
            if hvd.rank() == 0:  # as one that has come
                optimizer = DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), op=hvd.Sum)
        table(torch.tensor([1])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert torch.allclose(table.weight[1], torch.tensor(-0.2 * hvd.size())) and table.weight[0, 0] == 0


@of_runner
def test_gradients_in_flight_are_forgotten():
    model = torch.nn.Linear(64, 64)
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), groups=1)
    model(torch.ones(1, 64)).sum().backward()
    basics.change()
    optimizer.zero_grad()  # raises if gradients are being reduced
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    assert torch.equal(model.bias.grad, torch.ones(64))


def test_a_sync_that_fails_changes_nothing_that_is_saved():
    model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    state = elastic.TorchState(model=model, other=other, batch=hvd.rank() + 5)
    before = weights(model)

    def fail(_):
        raise hvd.HorovodInternalError("rank 7 has ended")

    state._bcast_object = fail
    with pytest.raises(hvd.HorovodInternalError):
        state.sync()
    assert hvd.rank() == 0 or not equal(weights(model), before)
    state.restore()
    assert equal(weights(model), before) and state.batch == hvd.rank() + 5


@of_runner
def test_an_optimizer_of_a_world_of_one_that_may_grow(monkeypatch):
    monkeypatch.setattr(basics, "_grows", True)
    model = torch.nn.Linear(2, 2)
    for op in (hvd.Sum, hvd.Adasum):
        optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=op)
        assert hvd.size() > 1 or op == hvd.Adasum or optimizer._reducer
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
