"""The data of `pipeline: sft`: tokenised rows, and the order in which they are used."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rollick.config.job import DatasetSettings, warmup_problems
from rollick.config.sft import SftJob
from rollick.data.batch import Batch
from rollick.data.datasets import load_rows
from rollick.data.records import Sample
from rollick.data.sampler import ShuffledSampler
from rollick.data.sft_rows import SftRows, prepare_sft_rows
from rollick.errors import ConfigError
from rollick.models.tokenizer import end_token_ids, load_tokenizer
from rollick.state.samples import SampleRecord
from rollick.state.seeds import derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class SftData:
    """Tokenised rows, the order in which they are used, and how many updates that makes."""

    def __init__(self, job: SftJob):
        self.job = job
        self.tokenizer = load_tokenizer(job.model)
        self.end_ids = end_token_ids(job.model, self.tokenizer)
        self.rows = self._prepare(job.dataset)
        self.evaluation = self._prepare(job.evaluation.dataset) if job.evaluation else None
        self.sampler = ShuffledSampler(len(self.rows), derive_seed(job.seed, "sft"))
        self.planned_updates = job.steps or math.ceil(self._planned_samples() / job.samples_per_update)
        problems = warmup_problems(job.trainer.schedule, self.planned_updates, f"{len(self.rows)} rows")
        if problems:
            raise ConfigError(problems)

    @property
    def epoch(self) -> float:
        """Passes over the rows so far; 1.5 is half-way through the second."""
        return self.sampler.drawn / len(self.rows)

    def next_batch(self) -> Batch:
        """The rows of the next update; of the last one of a job given in epochs, what is left."""
        count = self.job.samples_per_update
        if self.job.steps is None:
            count = min(count, self._planned_samples() - self.sampler.drawn)
        return Batch.from_samples([self.rows[index] for _, index in self.sampler.next(count)])

    def _planned_samples(self) -> int:
        return (self.job.epochs or 0) * len(self.rows)

    def _prepare(self, dataset: DatasetSettings) -> SftRows:
        return prepare_sft_rows(load_rows(dataset), self.tokenizer, self.job, self.end_ids)


def row_record(sample: Sample, tokenizer: PreTrainedTokenizerBase) -> SampleRecord:
    """A row as it is trained, for people: `response` is the text that carries loss."""
    trained = sample.token_ids[sample.loss_mask]
    return SampleRecord(
        id=sample.id,
        group_id=sample.group_id,
        task_id=sample.task_id,
        domain=sample.domain,
        prompt=str(tokenizer.decode(sample.token_ids[: int(sample.loss_mask.argmax())])),
        response=str(tokenizer.decode(trained)),
        token_ids=sample.token_ids.tolist(),
        loss_mask=sample.loss_mask.tolist(),
        behaviour_logprobs=sample.behaviour_logprobs.tolist(),
        versions=sample.versions.tolist(),
    )
