"""Each public name of berth.tensorflow has an example that runs.  One rank: python3 -m pytest FILE"""
import doctest

import pytest
import tensorflow as tf

import berth
import berth.tensorflow as hvd

OWN = {name: getattr(hvd, name) for name in hvd.__all__
       if getattr(hvd, name) is not getattr(berth, name, None) and callable(getattr(hvd, name))}


@pytest.mark.parametrize("name", sorted(OWN))
def test_example(name):
    hvd.init()
    found = doctest.DocTestFinder(recurse=False).find(OWN[name], name, globs={"hvd": hvd, "tf": tf})
    assert found and found[0].examples, "it has no example"
    assert doctest.DocTestRunner().run(found[0]).failed == 0
