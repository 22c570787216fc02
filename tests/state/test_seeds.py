"""Seeds derive from names: stable across processes, apart for every purpose."""

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from rollick.state.seeds import SEED_BITS, derive_seed

names = st.lists(st.one_of(st.text(max_size=6), st.integers(-(2**40), 2**40)), max_size=4)


def key(run_seed: int, path: list) -> tuple:
    return run_seed, *[(type(part).__name__, part) for part in path]


@given(st.integers(0, 2**32), names, st.integers(0, 2**32), names)
def test_different_paths_get_different_seeds(seed_a, path_a, seed_b, path_b):
    same = key(seed_a, path_a) == key(seed_b, path_b)
    assert (derive_seed(seed_a, *path_a) == derive_seed(seed_b, *path_b)) == same


@given(st.integers(0, 2**32), names)
def test_seed_fits_a_signed_64_bit_integer(seed, path):
    assert 0 <= derive_seed(seed, *path) < 2**SEED_BITS


def test_names_cannot_run_into_each_other():
    assert derive_seed(0, "a", "b") != derive_seed(0, "ab")
    assert derive_seed(0, "a", "b") != derive_seed(0, "b", "a")
    assert derive_seed(0, 1) != derive_seed(0, "1")


def test_seed_is_the_same_in_another_process():
    """A process with another hash salt (PYTHONHASHSEED) must derive the number the docstring shows."""
    code = "from rollick.state.seeds import derive_seed; print(derive_seed(7, 'episode', 3, 0))"
    env = {**os.environ, "PYTHONHASHSEED": "12345"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=env, check=True
    )
    assert int(result.stdout) == derive_seed(7, "episode", 3, 0) == 8539443541235431798
