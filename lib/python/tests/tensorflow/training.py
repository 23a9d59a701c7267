"""What tests of training share: the batches, and what ranks have to come to."""
import numpy as np

import berth.tensorflow as hvd

RANK, SIZE = hvd.rank(), hvd.size()


def data(steps, each):
    """For STEPS steps, EACH rows for each rank: all rows, and this rank's."""
    random = np.random.RandomState(1)
    x, y = random.randn(steps, SIZE, each, 3), random.randn(steps, SIZE, each, 1)
    return (x.reshape(-1, 3), y.reshape(-1, 1)), (x[:, RANK].reshape(-1, 3), y[:, RANK].reshape(-1, 1))


def same_everywhere(arrays):
    """ARRAYS have the same bits on all ranks."""
    of_all = hvd.allgather_object([np.asarray(a).tobytes() for a in arrays])
    return all(other == of_all[0] for other in of_all)


def check_weights(together, alone):
    """The weights TOGETHER of all ranks are those of one rank ALONE, which had all rows and doubles."""
    assert len(together) == len(alone)
    for a, b in zip(together, alone):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
    assert same_everywhere(together)
