"""The proof at every weight publish, against engines that lie."""

from collections.abc import Iterator

import pytest
import torch

from rollick.engines.base import Bucket, Receipt
from rollick.errors import WorkerError
from rollick.models.hashing import tensor_hash
from rollick.training.publish import publish_weights

WEIGHTS = {"a.weight": torch.arange(6.0).reshape(2, 3), "b.weight": torch.ones(4) / 3}


class Sender:
    def weights(self) -> Iterator[Bucket]:
        for name, tensor in WEIGHTS.items():
            yield {name: tensor}


class FaithfulEngine:
    """Loads everything and reports what stands in its memory."""

    def __init__(self) -> None:
        self.memory: dict[str, torch.Tensor] = {}

    def keeps(self, name: str) -> bool:
        return True

    def update_weights(self, version: int, buckets: Iterator[Bucket]) -> Receipt:
        for bucket in buckets:
            self.memory.update({n: t.clone() for n, t in bucket.items() if self.keeps(n)})
        return Receipt(version, {name: tensor_hash(tensor) for name, tensor in self.memory.items()})


class HalfEngine(FaithfulEngine):
    def keeps(self, name: str) -> bool:
        return name != "b.weight"


class StaleEngine(FaithfulEngine):
    def update_weights(self, version: int, buckets: Iterator[Bucket]) -> Receipt:
        receipt = super().update_weights(version, buckets)
        return Receipt(version - 1, receipt.hashes)


class TiedHeadEngine(FaithfulEngine):
    """Says it loaded everything, but one tensor keeps an old copy."""

    def update_weights(self, version: int, buckets: Iterator[Bucket]) -> Receipt:
        super().update_weights(version, buckets)
        self.memory["a.weight"] = torch.zeros(2, 3)
        return Receipt(version, {name: tensor_hash(tensor) for name, tensor in self.memory.items()})


def test_a_faithful_engine_passes_and_is_measured() -> None:
    engine = FaithfulEngine()
    metrics = publish_weights(Sender(), engine, 3, torch.float32)  # type: ignore[arg-type]
    assert metrics["publish/tensors"] == 2 and metrics["publish/bytes"] == 40
    assert all(torch.equal(engine.memory[name], tensor) for name, tensor in WEIGHTS.items())


def test_weights_are_cast_to_the_engines_dtype_before_they_are_hashed() -> None:
    engine = FaithfulEngine()
    metrics = publish_weights(Sender(), engine, 1, torch.bfloat16)  # type: ignore[arg-type]
    assert metrics["publish/bytes"] == 20 and engine.memory["b.weight"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("engine", "cause"),
    [
        (HalfEngine(), "partial: the engine did not load 1 of 2 parameters, among them b.weight"),
        (StaleEngine(), "stale: the engine serves version 2 after version 3 was sent"),
        (TiedHeadEngine(), "1 of 2 parameters in the engine differ from what the trainer sent, among them a.weight"),
    ],
)
def test_an_engine_that_loads_half_nothing_or_lies_stops_the_run_with_the_cause(engine, cause: str) -> None:
    with pytest.raises(WorkerError, match=cause):
        publish_weights(Sender(), engine, 3, torch.float32)  # type: ignore[arg-type]
