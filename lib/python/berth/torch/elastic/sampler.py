"""A sampler that knows how much of the epoch was seen, on all ranks together."""
from __future__ import annotations

import itertools
import math
import random
from typing import Dict, Iterable, Iterator, List, Mapping, Sized, cast

import torch.utils.data

from ... import basics


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Each rank gets its share of those samples of DATASET that were not recorded yet in this epoch, in an
    order that SEED and the epoch decide (SHUFFLE), or in that of DATASET.  The order is Horovod's.  All
    shares are of one length: some samples come twice where they do not divide.

        for epoch in range(state.epoch, epochs):
            sampler.set_epoch(epoch)
            for i, batch in enumerate(loader):
                ...
                sampler.record_batch(i, batch_size)
                state.commit()

    A TorchState with the sampler in it takes over in sync() what rank 0 has recorded.

    >>> sampler = hvd.elastic.ElasticSampler(range(4), shuffle=False)
    >>> sampler.record_batch(batch_idx=0, batch_size=3)
    >>> sampler.reset()
    >>> list(sampler)
    [3]
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Begin EPOCH: no sample was seen in it.  Call it before the first batch, not after the last."""
        self.load_state_dict({"epoch": epoch, "processed_num": 0})

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Each rank has seen one more batch.  BATCH_SIZE: of a full batch; BATCH_IDX does not matter."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> Dict[str, object]:
        """What a checkpoint keeps; processed_indices is there only if one with it was loaded."""
        state: Dict[str, object] = {"epoch": self.epoch, "processed_num": self.processed_num}
        return {**state, "processed_indices": self.processed_indices} if self.processed_indices else state

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Of state_dict(), or of Horovod: until 0.22 it kept processed_indices, since 0.23 processed_num."""
        self.epoch = cast(int, state_dict["epoch"])
        self.processed_indices = set(cast("Iterable[int]", state_dict.get("processed_indices", ())))
        self.processed_num = cast(int, state_dict.get("processed_num", len(self.processed_indices)))
        self.reset()

    def reset(self) -> None:
        """Share out among the ranks what was not seen."""
        self.num_replicas, self.rank = basics.size(), basics.rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        left: List[int] = [i for i in order if i not in self.processed_indices]
        left = left[self.processed_num - len(self.processed_indices):]
        self.remaining_indices = left
        self.num_samples = math.ceil(len(left) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        filled = itertools.islice(itertools.cycle(left), self.total_size) if left else ()
        self.indices = list(filled)[self.rank::self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
