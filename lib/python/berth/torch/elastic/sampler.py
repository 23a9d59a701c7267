"""A sampler that knows which samples of the epoch were seen, on any rank."""
import itertools
import math
import random

import torch.utils.data

from ... import basics


class ElasticSampler(torch.utils.data.Sampler):
    """Each rank gets its share of those samples of DATASET that were not recorded yet in this epoch, in an
    order that SEED and the epoch decide (SHUFFLE), or in that of DATASET.  All shares are of one length: some
    samples come twice where they do not divide.

        for epoch in range(state.epoch, epochs):
            sampler.set_epoch(epoch)
            for i, batch in enumerate(loader):
                ...
                sampler.record_batch(i, batch_size)
                state.commit()

    A TorchState with the sampler in it unites in sync() what all ranks have recorded.
    """

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_indices = set()
        self.reset()

    @property
    def processed_num(self):
        return len(self.processed_indices)

    def set_epoch(self, epoch):
        """Begin EPOCH: no sample was seen in it.  Call it before the first batch, not after the last."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """The samples of batch BATCH_IDX (from 0) of this rank were seen.  BATCH_SIZE: of a full batch."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices):
        """Samples with these INDICES in the dataset were seen."""
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx, batch_size):
        """What is in batch BATCH_IDX of this rank."""
        return self.indices[batch_idx * batch_size:(batch_idx + 1) * batch_size]

    def state_dict(self):
        return {"epoch": self.epoch, "processed_indices": self.processed_indices}

    def load_state_dict(self, state_dict):
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def reset(self):
        """Share out among the ranks what was not seen."""
        self.num_replicas, self.rank = basics.size(), basics.rank()
        left = [i for i in range(len(self.dataset)) if i not in self.processed_indices]
        self.remaining_indices = left
        self.num_samples = math.ceil(len(left) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        if self.shuffle:
            left = random.Random(self.seed + self.epoch).sample(left, len(left))
        filled = itertools.islice(itertools.cycle(left), self.total_size) if left else ()
        self.indices = list(filled)[self.rank::self.num_replicas]

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return self.num_samples
