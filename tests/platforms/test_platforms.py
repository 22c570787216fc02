import pytest
import torch

from rollick.errors import ConfigError
from rollick.platforms.select import PLATFORMS, select_platform


@pytest.fixture(params=sorted(PLATFORMS))
def platform(request):
    platform = PLATFORMS[request.param]()
    if not platform.available():
        pytest.skip(f"no {request.param} device here")
    return platform


def test_the_platform_of_a_device_is_found_by_its_kind():
    assert select_platform("cpu").device_type == "cpu"
    assert select_platform(torch.device("cpu")).collective_backend == "gloo"
    assert select_platform().available()


def test_unknown_and_absent_devices_are_named():
    with pytest.raises(ConfigError, match="unknown kind 'tpu'"):
        select_platform("tpu:0")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"device 'cuda:3': torch .* finds no cuda device"):
            select_platform("cuda:3")


def test_seed_and_restored_state_repeat_the_draws(platform):
    device = platform.device()
    platform.seed(3)
    state = platform.random_state()
    first = torch.rand(4, device=device), torch.rand(4)
    platform.restore_random_state(state)
    again = torch.rand(4, device=device), torch.rand(4)
    platform.seed(4)
    other = torch.rand(4, device=device), torch.rand(4)
    for a, b, c in zip(first, again, other):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_peak_memory_sees_a_large_block_and_forgets_it_after_a_reset(platform):
    megabyte = 2**20
    platform.release_memory()
    platform.reset_peak_memory()
    before = platform.peak_memory_bytes()
    block = torch.ones(200 * megabyte // 4, device=platform.device())
    platform.synchronize()
    peak = platform.peak_memory_bytes()
    assert peak - before > 150 * megabyte
    del block
    platform.release_memory()
    platform.reset_peak_memory()
    assert platform.peak_memory_bytes() < peak - 100 * megabyte
