#!/usr/bin/env python3
"""Handwritten digits, learned by all ranks together; a checkpoint after each epoch.

    runner -np 2 python3 examples/pytorch_digits.py --checkpoint-dir build/digits

Started again, it goes on after the last epoch that is complete.  It uses the Horovod API:
with `import horovod.torch as hvd` it is a program for Horovod.
"""
import argparse
import pathlib

import torch
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import berth.torch as hvd
from train_digits import HELD_OUT, digits


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--batch-size", type=int, default=32, help="pictures of one rank in a step")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate of one rank")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--no-cuda", action="store_true", help="do not use a GPU")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as 16-bit floats")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients by Adasum")
    parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
    parser.add_argument("--checkpoint-dir", type=pathlib.Path, help="no checkpoints without it")
    return parser.parse_args()


def network():
    nn = torch.nn
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)),
                         nn.Conv2d(1, 16, 3), nn.ReLU(),
                         nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(128, 10))


def train(model, optimizer, loader, device):
    """One pass over this rank's share of the pictures.  Returns its mean loss."""
    model.train()
    total = 0.0
    for pictures, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pictures.to(device)), labels.to(device))
        loss.backward()  # as soon as a gradient is there, the ranks begin to average it
        optimizer.step()  # waits for all of them
        total += loss.item()
    return total / len(loader)


def count_right(model, loader, device):
    """How many of this rank's digits the network knows, and how many there are."""
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for pictures, labels in loader:
            right += (model(pictures.to(device)).argmax(1).cpu() == labels).sum().item()
            seen += len(labels)
    return right, seen


def last_epoch(folder):
    """The number of the last complete epoch, or 0.  Rank 0 looks, and tells the others."""
    found = sorted(folder.glob("epoch-*.pt")) if folder and hvd.rank() == 0 else []
    number = int(found[-1].stem.split("-")[1]) if found else 0
    return hvd.broadcast(torch.tensor(number), root_rank=0, name="last_epoch").item()


def main():
    options = arguments()
    hvd.init()
    cuda = not options.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count()) if cuda else "cpu"
    torch.set_num_threads(1)  # pictures this small gain nothing from more
    torch.manual_seed(options.seed)

    everything = TensorDataset(*digits())
    training = Subset(everything, range(HELD_OUT, len(everything)))
    # each rank trains on its own share, which the sampler picks anew in each epoch
    sampler = DistributedSampler(training, num_replicas=hvd.size(), rank=hvd.rank(), seed=options.seed)
    loader = DataLoader(training, batch_size=options.batch_size, sampler=sampler)
    # every digit once, on one of the ranks
    held_out = DataLoader(Subset(everything, range(hvd.rank(), HELD_OUT, hvd.size())), batch_size=100)

    model = network().to(device)
    # the batch of a step grows with the ranks, and the learning rate with it, but not for Adasum
    scale = 1 if options.use_adasum else hvd.size()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr * scale, momentum=options.momentum)

    done = last_epoch(options.checkpoint_dir)
    if done and hvd.rank() == 0:
        state = torch.load(options.checkpoint_dir / f"epoch-{done:04}.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    # all ranks begin with what rank 0 has
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average,
        gradient_predivide_factor=options.gradient_predivide_factor)

    for epoch in range(done + 1, options.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train(model, optimizer, loader, device)
        loss = hvd.allreduce(torch.tensor(loss), name="loss").item()  # the mean over all ranks
        counts = torch.tensor(count_right(model, held_out, device))
        right, seen = hvd.allreduce(counts, op=hvd.Sum, name="right").tolist()
        if hvd.rank() == 0:
            print(f"epoch {epoch} loss {loss:.4f} accuracy {right / seen:.3f} on {seen} digits it never saw",
                  flush=True)
            if options.checkpoint_dir:
                options.checkpoint_dir.mkdir(parents=True, exist_ok=True)
                file = options.checkpoint_dir / f"epoch-{epoch:04}.pt"
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{file}.new")
                pathlib.Path(f"{file}.new").rename(file)  # a half-written file has another name


if __name__ == "__main__":
    main()
