"""NumPy's arrays as libberth's: the adapter for operations, where numpy_function has to do, and for numbers
that TensorFlow does not have.
"""
from __future__ import annotations

import ctypes
import math
import weakref
from typing import Callable, Tuple

import numpy as np
import tensorflow as tf

from .. import clib
from ..operations import Array, Operations

TYPES = {np.dtype(dtype.as_numpy_dtype): number for dtype, number in (
    (tf.uint8, clib.U8), (tf.int8, clib.I8), (tf.uint16, clib.U16), (tf.int16, clib.I16),
    (tf.int32, clib.I32), (tf.uint32, clib.U32), (tf.int64, clib.I64), (tf.uint64, clib.U64),
    (tf.float16, clib.F16), (tf.bfloat16, clib.BF16), (tf.float32, clib.F32), (tf.float64, clib.F64),
    (tf.bool, clib.BOOL))}


def plain(array: np.ndarray) -> Array[np.ndarray]:
    """As operations.py says."""
    type_ = TYPES.get(array.dtype)
    if type_ is None:
        raise ValueError(f"Tensor type {array.dtype} is not supported.")
    array = np.asarray(array, order="C")
    return array, type_, array.ctypes.data, array.size, array.shape, None


def like(array: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """As operations.py says."""
    return owner


def empty_like(array: Array[np.ndarray], rows: int | None) -> Tuple[np.ndarray, int]:
    """As operations.py says."""
    sizes = array[4] if rows is None else (rows, *array[4][1:])
    made = np.empty(sizes, array[0].dtype)
    return made, made.ctypes.data


def restore(array: np.ndarray, owner: np.ndarray) -> None:
    """TensorFlow's tensors do not change."""
    raise ValueError("tensors of TensorFlow do not change in place.")


def adopt(address: int, rows: int, array: Array[np.ndarray], let_go: Callable[[int], None]) -> np.ndarray:
    """As operations.py says."""
    dtype, sizes = array[0].dtype, (rows, *array[4][1:])
    if not rows:
        let_go(address)
        return np.empty(sizes, dtype)
    buffer = (ctypes.c_char * (math.prod(sizes) * array[0].itemsize)).from_address(address)
    weakref.finalize(buffer, let_go, address).atexit = False
    made: np.ndarray = np.frombuffer(buffer, dtype=dtype).reshape(sizes)
    return made


OPERATIONS = Operations[np.ndarray, np.ndarray](plain, like, empty_like, restore, adopt, TYPES)
