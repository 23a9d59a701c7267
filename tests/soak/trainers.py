"""A short training by another's trainer over a backend of torch.distributed.

    trainers.py lightning|accelerate|transformers BACKEND

Rank 0 prints the ranks, the backend, and the loss on all data before and after it: alike for all backends.
"""
import os
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
import torch.distributed as dist

INPUTS, STEPS, BATCH = 8, 20, 16


class Rows(torch.utils.data.Dataset):
    """Rows of numbers, and what a linear function makes of them."""

    def __init__(self):
        some = torch.Generator().manual_seed(1)
        self.x = torch.randn(STEPS * BATCH * 4, INPUTS, generator=some)
        self.y = self.x @ torch.randn(INPUTS, 1, generator=some)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.y[i]}


class Net(torch.nn.Module):
    """What transformers' Trainer asks of a network: the loss comes first."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2 + int(os.environ["RANK"]))  # the trainer gives all ranks those of rank 0
        self.layer = torch.nn.Linear(INPUTS, 1)

    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


def loss_on_all(net, rows):
    with torch.no_grad():
        return net(rows.x, rows.y)["loss"].item()


def with_lightning(backend, rows, net):
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, batch, _):
            loss = self.net(**batch)["loss"]
            self.log("loss", loss, sync_dist=True)  # a reduction of its own
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), max_steps=STEPS, logger=False,
        num_nodes=int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"]),
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        strategy=DDPStrategy(process_group_backend=backend))
    trainer.fit(Module(), loader)


def with_accelerate(backend, rows, net):
    from accelerate import Accelerator

    dist.init_process_group(backend)
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == dist.get_world_size()
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    for _, batch in zip(range(STEPS), loader):
        loss = model(**batch)["loss"]
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    assert accelerator.gather(loss.detach()).numel() == dist.get_world_size()


def with_transformers(backend, rows, net):
    from transformers import Trainer, TrainingArguments

    dist.init_process_group(backend)
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            folder, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=0.05,
            per_device_eval_batch_size=BATCH, report_to=[], save_strategy="no", disable_tqdm=True,
            logging_strategy="no", optim="sgd", lr_scheduler_type="constant",
            max_grad_norm=0, dataloader_pin_memory=False)
        trainer = Trainer(net, options, train_dataset=rows, eval_dataset=rows)
        assert options.world_size == dist.get_world_size()
        trainer.train()
        trainer.evaluate()  # gathers what all ranks found


def main():
    name, backend = sys.argv[1:]
    if backend == "berth":
        import berth.torch  # noqa: F401 -- it has the backend
    torch.set_num_threads(1)
    rows, net = Rows(), Net()
    first = loss_on_all(net, rows)
    globals()[f"with_{name}"](backend, rows, net)
    assert dist.get_backend() == backend, dist.get_backend()
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, loss_on_all(net, rows))
    assert len(set(losses)) == 1, losses  # all ranks have one network
    if dist.get_rank() == 0:
        print(f"{name}: {len(losses)} ranks, {dist.get_backend()}: {first:.5f} {losses[0]:.5f}", flush=True)
    dist.destroy_process_group()
    if backend == "gloo":  # a thread of it may abort the process while Python takes itself apart
        os._exit(0)


main()
