import dataclasses

import pytest
import torch

from rollick.algorithms.kl_control import AdaptiveKl, FixedKl, sequence_kl
from tests.algorithms.toy import NEW, REF, ROWS, close


@pytest.mark.parametrize(("kl", "expected"), [(9.0, 0.201024), (5.4, 0.199488), (6.0, 0.2), (600.0, 0.201024)])
def test_the_coefficient_follows_the_kl(kl, expected):
    close(AdaptiveKl(0.2, target=6.0).updated(kl, sequences=256).coef, expected)


def test_a_fixed_coefficient_stays():
    assert FixedKl(0.2).updated(9.0, sequences=256).coef == 0.2


def test_a_controller_survives_a_checkpoint():
    controller = AdaptiveKl(0.2, target=6.0, horizon=500).updated(9.0, sequences=100)
    assert AdaptiveKl(**dataclasses.asdict(controller)) == controller


def test_it_is_fed_the_mean_over_rows_of_their_mean_token_kl():
    kl = NEW - REF
    close(sequence_kl(kl, ROWS, 2), (kl[:2].mean() + kl[2:].mean()) / 2)
    close(sequence_kl(kl, ROWS * 2, 3), (kl[:2].mean() + kl[2:].mean()) / 2)  # an empty row in between
    assert sequence_kl(torch.zeros(0), torch.zeros(0, dtype=torch.long), 2) == 0
