"""The mistakes that `runner --lint` finds: three spellings of each, and each without the mistake.

The line of a mistake ends in "# here".  Nothing else may be found in a text, and nothing in a clean one.
"""
import importlib.util
import sys
from typing import Dict, List, NamedTuple, Tuple


class Rule(NamedTuple):
    """A part of the remedy, whether it is a note, and pairs of a text with the mistake and one without."""

    fix: str
    note: bool
    pairs: List[Tuple[str, str]]


TORCH = """import os
import horovod.torch as hvd
import torch
hvd.init()
torch.cuda.set_device(hvd.local_rank())
"""
# What Horovod's programs have in common: an optimizer, and a beginning that is the same.
WRAPPED = TORCH + """model = torch.nn.Linear(1, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size()))
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
model(x).backward()
"""
KERAS = """import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.experimental.set_memory_growth(gpus[0], True)
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
"""
V1 = """import tensorflow.compat.v1 as tf
import berth.tensorflow as hvd
hvd.init()
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())
"""
DDP = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(1, 1).cuda())
"""
ACCELERATE = """from accelerate import Accelerator
import time
import torch
accelerator = Accelerator()
"""


def swapped(text: str, *pairs: Tuple[str, str]) -> List[Tuple[str, str]]:
    """TEXT with the first of each pair for ..., and with the second."""
    return [(text.replace("...", wrong), text.replace("...", right)) for wrong, right in pairs]


RULES: Dict[str, Rule] = {
    "L1: the GPU of a rank": Rule("local rank", False, [
        *swapped("""import tensorflow.compat.v1 as tf
import horovod.tensorflow as hvd
hvd.init()
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(...)  # here
""", ("hvd.local_size()", "hvd.local_rank()")),
        *swapped("""import torch
from torch import distributed
distributed.init_process_group("nccl")
gpu = distributed.get_node_local_rank()
number = ...
device = torch.device(f"cuda:{number}")  # here
""", ("distributed.get_rank()", "gpu")),
        *swapped("""import os, torch
import torch.distributed as dist
dist.init_process_group()
rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(...)  # here
""", ("rank", "local")),
    ]),
    "L2: a share of another world": Rule("", False, [
        *swapped(KERAS + """
data = tf.data.Dataset.range(100).shard(hvd.size(), ...)  # here
""", ("hvd.local_rank()", "hvd.rank()")),
        *swapped(TORCH + """from torch.utils.data.distributed import DistributedSampler
sampler = DistributedSampler(data, num_replicas=..., rank=hvd.rank())  # here
""", ("hvd.local_size()", "hvd.size()")),
        *swapped(DDP + """
world = dist.get_world_size()
files = sorted(os.listdir("."))[...::world]  # here
""", ("local_rank", "dist.get_rank()")),
    ]),
    "L3: the order of shard()": Rule("", False, [
        *swapped(KERAS + """
data = tf.data.Dataset.range(100)...  # here
""", (".shuffle(10).shard(hvd.size(), hvd.rank())", ".shard(hvd.size(), hvd.rank()).shuffle(10)")),
        (KERAS + """
data = tf.data.Dataset.range(100)
data = data.repeat()
data = data.shard(num_shards=hvd.size(), index=hvd.rank())  # here
""", KERAS + """
data = tf.data.Dataset.range(100)
data = data.shard(num_shards=hvd.size(), index=hvd.rank())
data = data.repeat()
"""),
        *swapped(KERAS + """
files = tf.data.Dataset.list_files("*.tfrecord"...)
data = files.shard(hvd.size(), hvd.rank())  # here
""", ("", ", shuffle=False")),
    ]),
    "L3: a share of the evaluation set": Rule("leave the set whole", False, [
        *swapped(KERAS + """
test_data = tf.data.Dataset.range(100)...  # here
""", (".shard(hvd.size(), hvd.rank())", "")),
        (WRAPPED + """from torch.utils.data.distributed import DistributedSampler
sampler = DistributedSampler(val_set, hvd.size(), hvd.rank())  # here
""", WRAPPED + """from torch.utils.data.distributed import DistributedSampler
sampler = DistributedSampler(val_set, hvd.size(), hvd.rank())
accuracy = hvd.allreduce(accuracy)
"""),
        *swapped(KERAS + """
eval_ds = load()
shared = ...  # here
""", ("eval_ds.shard(hvd.size(), hvd.rank())", "eval_ds")),
    ]),
    "L4: work that does not depend on the ranks": Rule("size()", True, [
        *swapped(TORCH + """
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1...)  # here
optimizer = hvd.DistributedOptimizer(optimizer)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
""", ("", " * hvd.size()")),
        *swapped(KERAS + """
rate = 0.01...
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(learning_rate=rate))  # here
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
""", ("", " * hvd.size()")),
        *swapped(V1 + """
optimizer = hvd.DistributedOptimizer(tf.train.AdamOptimizer(0.001 * hvd.size()))
hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=2000...)]  # here
""", ("", " // hvd.size()")),
    ]),
    "L5: a checkpoint of all ranks": Rule("rank 0", False, [
        (WRAPPED + "torch.save(model.state_dict(), 'model.pt')  # here\n",
         WRAPPED + "if hvd.rank() == 0:\n    torch.save(model.state_dict(), 'model.pt')\n"),
        *swapped(V1 + """
with tf.train.MonitoredTrainingSession(checkpoint_dir=..., config=config) as session:  # here
    session.run(step)
""", ("'./checkpoints'", "'./checkpoints' if hvd.rank() == 0 else None")),
        (KERAS + """
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
callbacks.append(tf.keras.callbacks.ModelCheckpoint("./checkpoint.keras"))  # here
""", KERAS + """
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint("./checkpoint.keras"))
"""),
    ]),
    "L6: no rank chooses a GPU": Rule("choose the GPU", True, [
        *swapped("""import torch
import horovod.torch as hvd
hvd.init()
...model = torch.nn.Linear(1, 1).cuda()  # here
""", ("", "torch.cuda.set_device(hvd.local_rank())\n")),
        *swapped("""import torch, os
import torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(4).to(...)  # here
""", ("'cuda'", "f\"cuda:{os.environ['LOCAL_RANK']}\"")),
        *swapped("""import tensorflow as tf
import berth.tensorflow as hvd
hvd.init()  # here
...tape = hvd.DistributedGradientTape(tf.GradientTape())
hvd.broadcast_variables(variables, root_rank=0)
""", ("", "\n".join(KERAS.splitlines()[3:]) + "\n")),
    ]),
    "L7: different beginnings": Rule("broadcast", False, [
        *swapped(TORCH + """
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer)  # here
...model(x).backward()
""", ("", "hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n")),
        *swapped(KERAS + """
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1 * hvd.size()))  # here
model.compile(optimizer=optimizer)
model.fit(data, callbacks=[...])
""", ("", "hvd.callbacks.BroadcastGlobalVariablesCallback(0)")),
        *swapped(KERAS + """
with tf.GradientTape() as tape:
    loss = model(x)
tape = hvd.DistributedGradientTape(tape)  # here
grads = tape.gradient(loss, model.trainable_variables)
...""", ("", "hvd.broadcast_variables(model.variables, root_rank=0)\n")),
    ]),
    "L8: gradients that nothing averages": Rule("wrap ", False, [
        *swapped(TORCH + """
model = torch.nn.Linear(1, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())  # here
...model(x).backward()
""", ("", "optimizer = hvd.DistributedOptimizer(optimizer)\n")),
        *swapped(KERAS + """
optimizer = ...  # here
model.compile(optimizer=optimizer)
model.fit(data, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
""", ("tf.keras.optimizers.Adam(0.1 * hvd.size())",
              "hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1 * hvd.size()))")),
        *swapped("""import os, torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = ...
optimizer = torch.optim.AdamW(model.parameters())  # here
model(x).backward()
""", ("torch.nn.Linear(1, 1)", "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))")),
    ]),
    "L9: ports and GPUs that the script fixes": Rule("leave ", False, [
        *swapped("""import os
import torch.distributed as dist
...  # here
dist.init_process_group("gloo")
""", ("os.environ['MASTER_PORT'] = '29500'", "os.environ.setdefault('MASTER_PORT', '29500')")),
        *swapped(TORCH + "...  # here\n", ("os.environ.update({'CUDA_VISIBLE_DEVICES': '0,1'})", "pass")),
        *swapped("""import torch.distributed as dist
dist.init_process_group("gloo"...)  # here
""", (", init_method='tcp://10.0.0.1:23456'", ", init_method='env://'")),
    ]),
    "L10: a key in an image": Rule("secret", False, [
        *swapped("FROM debian\nRUN ...  # here\n",
                 ("ssh-keygen -t rsa -N '' -f /root/.ssh/id_rsa", "apt-get install -y openssh-client")),
        *swapped("FROM debian\nRUN mkdir /run/sshd && \\\n    ...  # here\n",
                 ("ssh-keygen -f /root/.ssh/id_ed25519 -P ''", "ssh-keygen -R ip1")),
        *swapped('FROM debian\nRUN ["...", "-f", "/key", "-N", ""]  # here\n', ("ssh-keygen", "touch")),
    ]),
    "L11: the whole memory of a GPU": Rule("allow_growth", True, [
        *swapped("""import tensorflow.compat.v1 as tf
import horovod.tensorflow as hvd
hvd.init()
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())  # here
...""", ("", "config.gpu_options.allow_growth = True\n")),
        *swapped("""import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
...tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")  # here
""", ("", "tf.config.experimental.set_memory_growth(gpus[0], True)\n")),
        *swapped("""import tensorflow.compat.v1 as tf
import berth.tensorflow as hvd
hvd.init()
options = tf.GPUOptions(visible_device_list=str(hvd.local_rank())...)  # here
""", ("", ", allow_growth=True")),
    ]),
    "L12: a collective of some ranks": Rule("every rank", False, [
        (WRAPPED + "if hvd.rank() == 0:\n    total = hvd.allreduce(loss)  # here\n    print(total)\n",
         WRAPPED + "total = hvd.allreduce(loss)\nif hvd.rank() == 0:\n    print(total)\n"),
        (DDP + "if dist.get_rank() != 0:\n    dist.barrier()  # here\n",
         DDP + "if dist.get_rank() != 0:\n    dist.barrier()\nprepare()\nif dist.get_rank() == 0:\n"
         "    dist.barrier()\n"),
        (ACCELERATE + """def evaluate(x):
    if not accelerator.is_main_process:
        return None
    return accelerator.gather(x)  # here
""", ACCELERATE + """def evaluate(x):
    x = accelerator.gather(x)
    if not accelerator.is_main_process:
        return None
    return x
"""),
    ]),
    "L12: a sleep for a collective": Rule("barrier()", False, [
        *swapped(WRAPPED + """import time
if hvd.rank() == 0:
    download()
...""", ("else:\n    time.sleep(60)  # here\n", "hvd.barrier()\n")),
        *swapped(DDP + "from time import sleep\nif local_rank != 0:\n    ...  # here\n",
                 ("sleep(30)", "pass")),
        *swapped(ACCELERATE + "if not accelerator.is_main_process:\n    ...  # here\n",
                 ("time.sleep(5)", "pass")),
    ]),
}


def main(path: str) -> int:
    """Try the rules of the file PATH.  Returns the status."""
    spec = importlib.util.spec_from_file_location("lint", path)
    lint = importlib.util.module_from_spec(spec)
    sys.modules["lint"] = lint
    spec.loader.exec_module(lint)
    wrong = 0
    for name, rule in RULES.items():
        file = "Dockerfile" if name.startswith("L10:") else "/nowhere/train.py"
        assert len(rule.pairs) == 3, name
        for mistake, clean in rule.pairs:
            found = lint.findings(mistake.encode(), file)
            line = next(n for n, text in enumerate(mistake.splitlines(), 1) if text.endswith("# here"))
            if [(each.line, each.note, rule.fix in each.fix) for each in found] != [(line, rule.note, True)]:
                wrong += 1
                print(f"{name}: line {line} of\n{mistake}has {found}")
            found = lint.findings(clean.encode(), file)
            if found:
                wrong += 1
                print(f"{name}: the clean\n{clean}has {found}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
