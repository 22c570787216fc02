"""Started by test_checkpoint: runs into the limit on file sizes, which the system reports like a full disk."""

import resource
import sys
from pathlib import Path

from rollick.errors import RollickError
from rollick.state.checkpoint import CheckpointStore


def main() -> None:
    store = CheckpointStore(Path(sys.argv[1]), keep_last=1)
    store.save(1, lambda folder: (folder / "w.bin").write_bytes(bytes(1000)) and None, {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
    try:
        store.save(2, lambda folder: (folder / "w.bin").write_bytes(bytes(50_000)) and None, {})
    except RollickError as error:
        print(error)


main()
