"""Started by test_checkpoint: saves forever, so that it can be killed in the middle of a save."""

import sys
import time
from pathlib import Path

from rollick.state.checkpoint import CheckpointStore


def write(folder: Path) -> None:
    for index in range(20):
        (folder / f"part{index}.bin").write_bytes(bytes(200_000))
        print("part", index, flush=True)
        time.sleep(0.005)


def main() -> None:
    store = CheckpointStore(Path(sys.argv[1]), keep_last=2)
    for step in range(int(sys.argv[2]), 10_000):
        store.save(step, write, {"step": step})
        print("saved", step, flush=True)


main()
