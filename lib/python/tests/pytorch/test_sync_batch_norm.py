"""SyncBatchNorm on shares of a batch against torch's BatchNorm on the whole.  Each rank of a job runs these
in one order: runner -np N python3 -m pytest lib/python/tests
"""
import copy

import pytest
import torch

import berth.torch as hvd
from berth.torch.sync_batch_norm import SyncBatchNorm

PLAIN = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}


@pytest.fixture(autouse=True)
def world():
    hvd.init()
    torch.manual_seed(1)
    yield
    hvd.shutdown()


def pair(dims, dtype=torch.float64, **arguments):
    """A SyncBatchNorm and torch's, with the same parameters."""
    ours, plain = SyncBatchNorm(4, **arguments).to(dtype), PLAIN[dims](4, **arguments).to(dtype)
    if plain.affine:
        torch.nn.init.normal_(plain.weight)
        torch.nn.init.normal_(plain.bias)
    ours.load_state_dict(plain.state_dict())
    return ours, plain


def share(tensor, sizes):
    return tensor.split(sizes)[hvd.rank()]


def close(ours, theirs, tolerance):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def compare(dims, sizes, tolerance=1e-9, dtype=torch.float64, of_input=None, **arguments):
    """Two steps of training, and one of eval.  SIZES: of the ranks' batches."""
    ours, plain = pair(dims, dtype, **arguments)
    for training in (True, True, False):
        ours.train(training)
        plain.train(training)
        whole = (torch.randn(sum(sizes), 4, *[3] * (dims - 2), dtype=dtype) * 3 + 100).to(of_input or dtype)
        wanted = torch.randn(whole.shape, dtype=dtype).to(of_input or dtype)
        theirs = whole.clone().requires_grad_()
        mine = share(whole, sizes).clone().requires_grad_()
        out, expected = ours(mine), plain(theirs)
        assert out.dtype == expected.dtype
        close(out, share(expected, sizes), tolerance)
        expected.backward(wanted)
        out.backward(share(wanted, sizes))
        close(mine.grad, share(theirs.grad, sizes), tolerance)
        for a, b in zip(ours.parameters(), plain.parameters()):
            close(hvd.allreduce(a.grad, op=hvd.Sum), b.grad, tolerance * sum(sizes))
            a.grad = b.grad = None
        for a, b in zip(ours.buffers(), plain.buffers()):
            close(a, b, tolerance)


@pytest.mark.parametrize("dims", [2, 3, 4, 5])
def test_as_one_process(dims):
    compare(dims, [3] * hvd.size())


def test_batches_of_different_sizes():
    compare(4, [1 + 2 * r for r in range(hvd.size())] if hvd.size() > 1 else [4])


def test_a_rank_without_samples():
    if hvd.size() == 1:
        pytest.skip("one rank has all samples")
    compare(4, [0] + [3] * (hvd.size() - 1))


@pytest.mark.parametrize("arguments", [
    {"momentum": None}, {"momentum": 0.5}, {"affine": False}, {"track_running_stats": False}, {"eps": 0.5},
], ids=str)
def test_arguments(arguments):
    if arguments.get("track_running_stats", True):
        compare(4, [2] * hvd.size(), **arguments)
        return
    ours, plain = pair(4, **arguments)
    whole = torch.randn(2 * hvd.size(), 4, 2, 2).double()
    mine = share(whole, [2] * hvd.size())
    close(ours(mine), share(plain(whole), [2] * hvd.size()), 1e-9)
    close(ours.eval()(mine), plain.eval()(mine), 1e-9)  # this rank's statistics


@pytest.mark.parametrize("of_input, tolerance", [(torch.bfloat16, 0.1), (torch.float16, 0.02), (None, 2e-4)],
                         ids=["bf16", "f16", "f32"])
def test_types(of_input, tolerance):
    """Parameters of float32."""
    compare(4, [4] * hvd.size(), tolerance, torch.float32, of_input)


def test_parameters_of_16_bits():
    module = SyncBatchNorm(4).bfloat16()
    x = torch.randn(4, 4).bfloat16().requires_grad_()
    out = module(x)
    out.float().square().sum().backward()
    assert out.dtype == x.grad.dtype == module.weight.grad.dtype == torch.bfloat16


def test_channels_last():
    ours, plain = pair(4)
    whole = torch.randn(2 * hvd.size(), 4, 3, 3).double().to(memory_format=torch.channels_last)
    out = ours(share(whole, [2] * hvd.size()))
    assert out.is_contiguous(memory_format=torch.channels_last)
    close(out, share(plain(whole), [2] * hvd.size()), 1e-9)


def test_within_a_model():
    """Two of them, and gradients that go on: as in a single process."""
    plain = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 2), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
                                torch.nn.Conv2d(4, 4, 2), torch.nn.BatchNorm2d(4)).double()
    ours = copy.deepcopy(plain)
    for i in (1, 4):
        ours[i] = SyncBatchNorm(4).double()
    x = torch.randn(3 * hvd.size(), 1, 4, 4).double()
    plain(x).square().sum().backward()
    ours(share(x, [3] * hvd.size())).square().sum().backward()
    for a, b in zip(ours.parameters(), plain.parameters()):
        close(hvd.allreduce(a.grad, op=hvd.Sum), b.grad, 1e-8)


def test_without_gradients():
    ours, plain = pair(2)
    whole = torch.randn(2 * hvd.size(), 4).double()
    with torch.no_grad():
        close(ours(share(whole, [2] * hvd.size())), share(plain(whole), [2] * hvd.size()), 1e-9)
    close(ours.running_var, plain.running_var, 1e-9)


def test_errors():
    module = SyncBatchNorm(4)
    with pytest.raises(ValueError, match="at least 2D"):
        module(torch.zeros(4))
    with pytest.raises(ValueError, match="Expected more than 1 value"):
        module(torch.zeros(1 if hvd.rank() == 0 else 0, 4))
