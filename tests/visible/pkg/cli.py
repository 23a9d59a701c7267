import os
import torch


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
