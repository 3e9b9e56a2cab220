"""Data of one's own: any domains, with or without styles; all prompts count alike."""

from rmlab.benchmarks.benchmark import Benchmark

__all__ = ["OWN"]

OWN = Benchmark(name="own", title="data of your own", source="rmlab.load_pairs")
