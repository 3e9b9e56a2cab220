"""Run the labs, and the tests of what trains or solves in steps, as on other machines.

    python tests/other_machines.py [MACHINE ...]

A machine is a set of environment variables that make the libraries round as on another
processor. Each runs in processes of its own, since the variables are read at the start.
`make test-machines` runs the first three.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
COPY = ROOT / "artefacts" / "lessons"
FOUND = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])


def instructions(torch: str, mkl: str, onednn: str, numpy: list[str], openblas: str):
    """Variables that keep libraries from using newer instructions."""
    openblas = openblas if "X86_V3" in FOUND else ""
    return {
        "ATEN_CPU_CAPABILITY": torch,
        "MKL_CBWR": mkl,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "NPY_DISABLE_CPU_FEATURES": " ".join(numpy),
    } | ({"OPENBLAS_CORETYPE": openblas} if openblas else {})


TWO_THREADS = {"OMP_NUM_THREADS": "2", "RMLAB_TEST_THREADS": "2"}
ABOVE_AVX2 = [name for name in FOUND if "V4" in name or "512" in name]
MACHINES = {
    "oldest": instructions("default", "COMPATIBLE", "SSE41", FOUND, "Haswell"),
    "avx2": instructions("avx2", "AVX2", "AVX2", ABOVE_AVX2, "Haswell"),
    "moved": {"RMLAB_OTHER_MACHINE": "1"} | TWO_THREADS,
    "avx512": instructions("avx512", "AVX512", "AVX512_CORE", [], "SkylakeX"),
    "two-threads": {"OPENBLAS_NUM_THREADS": "2"} | TWO_THREADS,
    "moved-2": {"RMLAB_OTHER_MACHINE": "2"},
    "this": {},
}
"""The first three are run where none is named. `moved` moves the first weights of what
`course.train` trains by one part in a million.
"""
LABS = ("5*", "2*", "3*", "4*", "1*")  # the longest first, for two at a time
TESTS = ("training", "course", "bias", "stats")


def run(machine: str) -> bool:
    """Whether the labs and tests pass."""
    folder = COPY / machine
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("notebooks", "figures"):
        shutil.copytree(ROOT / name, folder / name)
    solutions = folder / "notebooks" / "course" / "solutions"
    labs = [next(solutions.glob(f"0{lab}.ipynb")) for lab in LABS]
    tests = [ROOT / "tests" / f"test_{name}.py" for name in TESTS]
    options = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout", "600"]
    options += ["--override-ini", "addopts=", "-q", "-n", "2", "--dist", "loadfile"]
    command = [sys.executable, "-m", "pytest", *options, *labs, *tests]
    env = os.environ | {"TQDM_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=env | MACHINES[machine], check=False)
    state = "failed" if done.returncode else "passed"
    print(f"{machine}: {state} in {time.monotonic() - start:.0f} seconds", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    results = [run(machine) for machine in sys.argv[1:] or [*MACHINES][:3]]
    sys.exit(not all(results))
