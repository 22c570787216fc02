"""`pipeline: sft`: a model learns to say what a dataset says.

One step: draw rows, raise the likelihood of their trained tokens by one optimiser update. Its metrics: `loss`
(what was optimised), `loss/nll` (per trained token, in nats), `learning_rate`, `grad_norm`, `tokens` and
`trained_tokens` (of this step's rows), `tokens_per_second`, `samples` (rows drawn since the start), `epoch` (passes
over the dataset so far) and, where it was evaluated, `eval/loss` and `eval/perplexity`.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from pathlib import Path

import torch

from rollick.config.sft import SftJob
from rollick.data.batch import Batch
from rollick.data.sft_rows import SftRows
from rollick.models.tokenizer import save_tokenizer
from rollick.pipelines.run_session import Resume, RunSession
from rollick.pipelines.sft_data import SftData, row_record
from rollick.runtime.local import LocalRuntime
from rollick.state.seeds import derive_seed
from rollick.training.losses import SftLoss
from rollick.training.trainer import Trainer

log = logging.getLogger(__name__)

SHOWN_ROWS = 4
"""The first rows are written to `samples/step_000000.jsonl`: what exactly is trained can be read there."""
COLUMNS = ("loss", "learning_rate", "grad_norm", "tokens_per_second", "epoch", "eval/loss")


def run(job: SftJob, resume: Resume = None) -> Path:
    """Train, evaluate, checkpoint, export; returns the run directory, in whose `export/` the model stands.

    A resumed run ends with the weights of an uninterrupted one. Raises InterruptedRun after Ctrl-C (a checkpoint
    is written), and DataError or ConfigError before any weights are loaded.
    """
    data = SftData(job)
    with ExitStack() as stack:
        session = stack.enter_context(RunSession(job, data.planned_updates, COLUMNS, resume))
        pipeline = SftPipeline(job, data, session, stack)
        pipeline.start()
        while session.step < data.planned_updates:
            pipeline.update(data.next_batch())
            pipeline.end_step()
        pipeline.finish()
        return session.run.path


class SftPipeline:
    """The model of a job and the stages of a step."""

    def __init__(self, job: SftJob, data: SftData, session: RunSession, stack: ExitStack):
        self.job, self.data, self.session = job, data, session
        self.loss = SftLoss(aggregation=job.loss_aggregation)
        runtime = stack.enter_context(LocalRuntime())
        seed = derive_seed(job.seed, "trainer")
        self.trainer = Trainer(runtime, job.model, job.trainer, data.planned_updates, seed)

    def start(self) -> None:
        """Continue where the checkpoint ends, or say what will be trained on."""
        if self.session.resumed:
            folder, meta = self.session.resumed
            self.trainer.load(folder)
            self.data.sampler.restore(meta["sampler"])
            return
        self.session.metrics.add(self.data.rows.report.metrics())
        self._describe("training", self.data.rows)
        if self.data.evaluation:
            self._describe("evaluation", self.data.evaluation)
        shown = [row_record(sample, self.data.tokenizer) for sample in self.data.rows[:SHOWN_ROWS]]
        self.session.run.write_samples(0, shown, max_groups=SHOWN_ROWS)

    def update(self, batch: Batch) -> None:
        started = time.monotonic()
        result = self.trainer.update(batch, self.loss)
        seconds = time.monotonic() - started
        self.session.metrics.add(
            result.metrics
            | {
                "tokens": batch.num_tokens,
                "trained_tokens": int(batch.tokens["loss_mask"].sum()),
                "tokens_per_second": batch.num_tokens / seconds,
                "samples": self.data.sampler.drawn,
                "epoch": self.data.epoch,
            }
        )

    def end_step(self) -> None:
        """Evaluate and checkpoint where due; raises InterruptedRun when Ctrl-C was pressed."""
        session, job = self.session, self.job
        last = session.step + 1 == self.data.planned_updates
        if job.evaluation and self.data.evaluation and (last or _every(job.evaluation.every, session.step + 1)):
            session.metrics.add(self.evaluate(self.data.evaluation))
        session.end_step()
        if last or session.due(job.checkpoint.every):
            session.save(self.trainer.save, self._meta())
        if session.stop.stop_requested and not last:
            raise session.interrupt(self.trainer.save, self._meta())

    def evaluate(self, rows: SftRows) -> dict[str, float]:
        """`eval/loss`, aggregated as the training loss is but over all rows at once, and the perplexity per token.

        Every row counts once: a last batch that is short weighs what its tokens (or rows) weigh.
        """
        totals = torch.zeros(4, dtype=torch.float64)
        size = self.job.samples_per_update
        for start in range(0, len(rows), size):
            batch = Batch.from_samples(rows[start : start + size])
            logprobs, _ = self.trainer.logprobs(batch, temperature=1.0)
            totals += nll_totals(batch, logprobs)
        return evaluation_metrics(totals, self.job.loss_aggregation)

    def finish(self) -> None:
        self.trainer.export(self.session.run.export)
        save_tokenizer(self.session.run.export, self.data.tokenizer, self.data.end_ids)
        self.session.console.note(f"the model is in {self.session.run.export}")

    def _describe(self, what: str, rows: SftRows) -> None:
        self.session.console.note(f"{what}: {rows.report.summary()}")
        if rows.report.without_end_token:
            lacking = rows.report.without_end_token
            log.warning("%s: %d rows train no end token and do not teach the model to stop", what, lacking)

    def _meta(self) -> dict[str, object]:
        return {"sampler": self.data.sampler.state()}


def nll_totals(batch: Batch, logprobs: torch.Tensor) -> torch.Tensor:
    """float64[4]: Σ over tokens of the negative log-likelihood, trained tokens, Σ over rows of the row's mean, rows.

    Rows with losses [1, 1, 1] and [0, 0, 0, 0, 0] give [3, 8, 1, 2].
    """
    live = batch.tokens["loss_mask"]
    rows = batch.row_index()[live]
    nll = -logprobs[live].double()
    sums = torch.zeros(batch.num_rows, dtype=torch.float64).index_add_(0, rows, nll)
    counts = torch.zeros(batch.num_rows, dtype=torch.float64).index_add_(0, rows, torch.ones_like(nll))
    return torch.stack([nll.sum(), counts.sum(), (sums / counts).sum(), counts.new_tensor(batch.num_rows)])


def evaluation_metrics(totals: torch.Tensor, aggregation: str) -> dict[str, float]:
    """From the sum of `nll_totals` over batches."""
    nll, tokens, row_means, rows = totals.tolist()
    loss = nll / tokens if aggregation == "token_mean" else row_means / rows
    return {"eval/loss": loss, "eval/perplexity": float(torch.tensor(nll / tokens, dtype=torch.float64).exp())}


def _every(every: int | None, step: int) -> bool:
    return every is not None and step % every == 0
