"""The name "berth" for torch.distributed.init_process_group(), also as torch's entry point at its import.

An exception here would break every `import torch`: so nothing here needs libberth or berth.torch.
"""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .build import cuda_built

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _DistributedBackendOptions
    from torch.distributed import ProcessGroup

NAME = "berth"


def _make(options: _DistributedBackendOptions, backend_options: object) -> ProcessGroup:
    from .torch.process_group import make
    return make(options, backend_options)


def register() -> None:
    """Tell torch.distributed of the backend.  It may be called again, and raises nothing."""
    try:
        import torch.distributed as dist
        if dist.is_available() and NAME.upper() not in dist.Backend._plugins:
            devices = ["cpu", "cuda"] if cuda_built() else ["cpu"]
            dist.Backend.register_backend(NAME, _make, extended_api=True, devices=devices)
    except Exception as e:
        logging.getLogger(__name__).warning("berth: torch.distributed gets no backend %r: %s", NAME, e)
