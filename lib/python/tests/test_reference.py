"""The reference of the package: each public name has a place in it, with an example that runs.  One rank:
REFERENCE=build/man/berth.torch.3 python3 -m pytest lib/python/tests/test_reference.py
"""
import doctest
import os
import re

import pytest
import torch

import berth.torch as hvd

HERE = {name: getattr(hvd, name) for name in hvd.__all__}
NAMES = {**HERE, **{f"elastic.{name}": getattr(hvd.elastic, name) for name in hvd.elastic.__all__}}
NAMED = {name: thing for name, thing in NAMES.items() if callable(thing)}  # not numbers, sets and modules


@pytest.mark.parametrize("name", sorted(NAMED))
def test_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hvd.init()
    found = doctest.DocTestFinder(recurse=False).find(NAMED[name], name, globs={"hvd": hvd, "torch": torch})
    assert found and found[0].examples, "it has no example"
    assert doctest.DocTestRunner().run(found[0]).failed == 0


def test_each_name_is_in_the_page():
    with open(os.environ["REFERENCE"]) as f:
        text = f.read()
    missing = [name for name in NAMED if not re.search(rf"^\.It Ic {re.escape(name)} ", text, re.M)]
    assert missing == [] and [name for name in NAMES if not re.search(rf"\b{name}\b", text)] == []
