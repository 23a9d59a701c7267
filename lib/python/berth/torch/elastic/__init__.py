"""Horovod's elastic training for PyTorch: states and samplers work; run() calls its function once."""
from ...elastic import ObjectState, State, run
from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
