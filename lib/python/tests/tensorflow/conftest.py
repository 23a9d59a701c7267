"""Ranks go from test to test together; TensorFlow's own lines are not shown."""
import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import berth.tensorflow as hvd  # noqa: E402
from berth import operations  # noqa: E402

hvd.init()


@pytest.fixture(autouse=True)
def together():
    """A test begins on all ranks when it has ended on all."""
    yield
    operations.barrier(hvd.global_process_set)
