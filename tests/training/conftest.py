import pytest
import torch.distributed as dist


@pytest.fixture(autouse=True)
def no_process_group_is_left_behind():
    """A sharded backend of one process starts a process group; a later test must not find it."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
