"""The handwritten digits in data/digits.inc, for the examples in Python.  It needs NumPy alone."""
import pathlib
import re

import numpy as np

HELD_OUT = 297  # digits that only judge the result


def read():
    """1797 pictures as rows of 64 pixels, 0 to 1, and the digit that each one shows."""
    text = (pathlib.Path(__file__).parent / "data/digits.inc").read_text()
    lines = re.findall(r'^"(\d[0-9a-g]{64})",$', text, re.M)
    table = np.array([[int(c, 17) for c in line] for line in lines], np.float32)
    return table[:, 1:] / 16, table[:, 0].astype(np.int64)


def load():
    """(pictures, digits) for the training, and (pictures, digits) that judge the result."""
    pictures, labels = read()
    return (pictures[HELD_OUT:], labels[HELD_OUT:]), (pictures[:HELD_OUT], labels[:HELD_OUT])
