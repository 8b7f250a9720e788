"""Doctests of modules that need an extra are collected only where that is installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["choral/learning/torch_steps.py"]
