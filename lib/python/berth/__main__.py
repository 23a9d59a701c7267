"""`python -m berth` is runner."""
import os
import sys

from .launch import runner_path

try:
    path = runner_path()
except FileNotFoundError as e:
    sys.exit(f"berth: {e}")
os.execv(path, ["runner", *sys.argv[1:]])
