"""Each public name for TensorFlow and Keras has an example that runs.  One rank: python3 -m pytest FILE"""
import doctest
import inspect

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
