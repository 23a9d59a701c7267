"""The reference for TensorFlow and Keras: each public name has a place in it, with an example that runs.  One
rank: REFERENCE=build/man/berth.tensorflow.3 python3 -m pytest lib/python/tests/test_tensorflow_reference.py
"""
import doctest
import inspect
import os
import re

import numpy as np
import pytest
import tensorflow as tf

import berth
import berth.keras
import berth.tensorflow as hvd
import berth.tensorflow.keras

# ... and names that are loaded when they are asked for
OWN = {name: getattr(hvd, name) for name in {*hvd.__all__, "SyncBatchNormalization"}
       if getattr(hvd, name) is not getattr(berth, name, None) and callable(getattr(hvd, name))}
PARTS = {"tensorflow.elastic": hvd, "keras.callbacks": berth.keras, "keras.elastic": berth.keras,
         "tensorflow.keras.callbacks": hvd.keras, "tensorflow.keras.elastic": hvd.keras}
ALL = {name: (hvd, thing) for name, thing in OWN.items()}
for package, of in (("tensorflow.keras", hvd.keras), ("keras", berth.keras)):
    names = [name for name in of.__all__ if getattr(of, name) is not getattr(berth, name, None)]
    ALL.update({f"{package}.{name}": (of, getattr(of, name)) for name in names
                if inspect.isroutine(getattr(of, name))})
for part, of in PARTS.items():
    module = getattr(of, part.rpartition(".")[2])
    ALL.update({f"{part}.{name}": (of, getattr(module, name)) for name in module.__all__
                if not hasattr(berth, name)})


@pytest.mark.parametrize("name", sorted(ALL))
def test_example(name, tmp_path):
    hvd.init()
    of, thing = ALL[name]
    found = doctest.DocTestFinder(recurse=False).find(thing, name, globs={
        "hvd": of, "tf": tf, "np": np, "keras": tf.keras, "folder": str(tmp_path)})
    assert found and found[0].examples, "it has no example"
    assert doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(found[0]).failed == 0


def on_the_page(name):
    """Names of berth.keras stand for those of berth.tensorflow.keras, too, and all share those of elastic."""
    last = name.rpartition(".")[2]
    return f"elastic.{last}" if last in hvd.elastic.__all__ else name.replace("tensorflow.", "")


def test_each_name_is_in_the_page():
    with open(os.environ["REFERENCE"]) as f:
        text = f.read()
    names = set(map(on_the_page, ALL))
    assert [name for name in names if not re.search(rf"^\.It Ic {re.escape(name)} ", text, re.M)] == []
    words = {name for of in (hvd, hvd.keras, berth.keras) for name in of.__all__}
    assert [name for name in words if not re.search(rf"\b{name}\b", text)] == []
