"""Benchmarks: one file each says how it is read and counted."""

from rmlab.benchmarks.benchmark import Benchmark
from rmlab.benchmarks.layout import Layout
from rmlab.benchmarks.own_files import load_preferences
from rmlab.benchmarks.pools import load_pool
from rmlab.benchmarks.registry import load
from rmlab.benchmarks.sampling import sample

__all__ = [
    "Benchmark",
    "Layout",
    "load",
    "load_pool",
    "load_preferences",
    "sample",
]
