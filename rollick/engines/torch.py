"""The built-in engine: continuous batching over any Hugging Face causal LM, in process, on CPU or an accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from rollick.engines.base import EngineContext, EngineOptions

if TYPE_CHECKING:
    from rollick.engines.torch_engine import TorchEngine


class Options(EngineOptions):
    kind: Literal["torch"]
    slots: PositiveInt = 64
    """Rows that decode together; further requests wait."""
    prefill_tokens: PositiveInt = 4096
    """Tokens (with padding) of one prompt pass; longer prompts run in pieces."""
    packed_weights: bool = True
    """On a CPU in float32: hold large weights a second time in the processor's own layout. Products of few rows
    are up to twice as fast; the memory of the engine's weights doubles."""

    def build(self, context: EngineContext) -> TorchEngine:
        """Load the model onto the context's device. Raises DataError when the folder does not hold it.

        Rows of one decode step differ in length, which takes an attention mask: flash attention, where the job
        asks for it, stays with the trainer, and the engine uses the model's default.
        """
        from rollick.engines.torch_engine import TorchEngine
        from rollick.models.load import load_causal_lm

        masked = context.model.attention in ("sdpa", "eager")
        settings = context.model if masked else context.model.model_copy(update={"attention": "auto"})
        return TorchEngine(
            load_causal_lm(settings, device=context.device),
            tokenizer=context.tokenizer,
            eos_token_ids=context.eos_token_ids,
            max_length=context.max_length,
            slots=self.slots,
            prefill_tokens=self.prefill_tokens,
            packed_weights=self.packed_weights,
        )
