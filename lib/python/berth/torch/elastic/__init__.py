"""Horovod's elastic training for PyTorch: states, samplers, and run(), for ranks that come and go."""
from ...elastic import ObjectState, State, run
from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
