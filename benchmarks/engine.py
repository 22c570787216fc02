"""Tokens per second of the torch engine against transformers: `python -m benchmarks.engine [--small]`.

64 prompts with answer lengths that spread as real ones do (log-normal, 8..256 tokens), on a Llama of SmolLM2-135M's
shape with random weights in float32; the lengths are forced, so no engine wins by stopping early. transformers'
`generate` takes all 64 as one left-padded batch, which runs until the longest answer is done; its continuous
batching takes the same requests with their own limits. Only tokens that were asked for count. The GEMM limit is
what this machine needs for the model's matrix products alone, at the number of rows alive in each step.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from benchmarks.common import alternate, machine, median, report
from rollick.engines.base import GenerationRequest, Sampling, generate
from rollick.engines.torch_engine import TorchEngine
from rollick.engines.torch_packing import PackedProduct, can_pack

PAD = 0


@dataclass(frozen=True)
class Workload:
    """Prompts and the number of tokens each must get; every answer is forced to its length."""

    prompts: list[list[int]]
    lengths: list[int]

    @property
    def tokens(self) -> int:
        return sum(self.lengths)


def smollm2_shaped(small: bool) -> LlamaForCausalLM:
    """SmolLM2-135M's configuration, random weights; `small` keeps two layers and a tenth of the vocabulary."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=2 if small else 30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=4915 if small else 49152,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=PAD,
    )
    return LlamaForCausalLM(config).eval()


def workload(vocab: int, requests: int, longest: int) -> Workload:
    rng = random.Random(0)
    prompts = [[rng.randrange(3, vocab) for _ in range(rng.randrange(16, 65))] for _ in range(requests)]
    lengths = [min(longest, max(8, round(rng.lognormvariate(4.0, 0.8)))) for _ in range(requests)]
    return Workload(prompts, lengths)


def with_engine(engine: TorchEngine, work: Workload) -> float:
    """Tokens per second of one run."""
    requests = [
        GenerationRequest(str(i), tuple(prompt), Sampling(max_new_tokens=length), seed=i)
        for i, (prompt, length) in enumerate(zip(work.prompts, work.lengths))
    ]
    started = time.perf_counter()
    answers = generate(engine, requests)
    seconds = time.perf_counter() - started
    made = [len(answer.token_ids) for answer in answers]
    if made != work.lengths:
        raise RuntimeError("the engine did not give every request its length")
    return work.tokens / seconds


@torch.inference_mode()
def with_generate(model: LlamaForCausalLM, work: Workload) -> float:
    """One left-padded batch, sampled at temperature 1 from the whole vocabulary, as long as the longest answer."""
    widest = max(map(len, work.prompts))
    ids = torch.tensor([[PAD] * (widest - len(p)) + p for p in work.prompts])
    mask = torch.tensor([[0] * (widest - len(p)) + [1] * len(p) for p in work.prompts])
    started = time.perf_counter()
    model.generate(input_ids=ids, attention_mask=mask, generation_config=_sampled(max(work.lengths)))
    return work.tokens / (time.perf_counter() - started)


def _sampled(length: int) -> GenerationConfig:
    return GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=length,
        min_new_tokens=length,
        eos_token_id=None,
        pad_token_id=PAD,
    )


def with_continuous_batching(model: LlamaForCausalLM, work: Workload) -> float:
    """transformers' own continuous batching. Raises RuntimeError when it gives up on a request."""
    config = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=-1, pad_token_id=PAD)
    with model.continuous_batching_context_manager(generation_config=config, timeout=5) as manager:
        started = time.perf_counter()
        for i, (prompt, length) in enumerate(zip(work.prompts, work.lengths)):
            manager.add_request(prompt, request_id=str(i), max_new_tokens=length, eos_token_id=-1)
        made = 0
        done = 0
        while done < len(work.prompts):
            result = manager.get_result(timeout=5)
            if result is not None and result.is_finished():
                done, made = done + 1, made + len(result.generated_tokens)
            elif result is None and not manager.is_running():
                raise RuntimeError(f"its generation thread ended after {done} of {len(work.prompts)} requests")
        seconds = time.perf_counter() - started
    if made != work.tokens:
        raise RuntimeError(f"it made {made} tokens instead of {work.tokens}")
    return work.tokens / seconds


@torch.inference_mode()
def gemm_seconds(model: LlamaForCausalLM, work: Workload) -> float:
    """Seconds of nothing but the model's matrix products for this workload, by the fastest product this machine has
    for each: the prompts in one pass without the head, then each decode step with the rows alive in it."""
    layers = [m for m in model.model.modules() if isinstance(m, torch.nn.Linear)]
    products = [lambda layer, x: torch.nn.functional.linear(x, layer.weight)]
    if can_pack(model):
        packed = {layer: PackedProduct(layer) for layer in (*layers, model.lm_head)}
        products.append(lambda layer, x: packed[layer](x))
    alive = Counter(sum(length > step for length in work.lengths) for step in range(max(work.lengths)))
    total = _seconds(products, layers, sum(map(len, work.prompts)))
    cost: dict[int, float] = {}
    for rows, steps in alive.items():
        near = rows if rows < 8 else rows // 4 * 4
        if near not in cost:
            cost[near] = _seconds(products, [*layers, model.lm_head], near)
        total += steps * cost[near] * rows / near
    return total


def _seconds(products: list[Callable[..., Any]], layers: list[torch.nn.Linear], rows: int, repeats: int = 3) -> float:
    """Of one pass over all layers with this many rows, at its best."""
    inputs = {width: torch.randn(rows, width) for width in {layer.in_features for layer in layers}}
    best = float("inf")
    for product in products * repeats:
        started = time.perf_counter()
        for layer in layers:
            product(layer, inputs[layer.in_features])
        best = min(best, time.perf_counter() - started)
    return best


def measure(small: bool, rounds: int) -> dict[str, Any]:
    model = smollm2_shaped(small)
    work = workload(model.config.vocab_size, requests=8 if small else 64, longest=32 if small else 256)
    engine = TorchEngine(smollm2_shaped(small))  # a model of its own: it packs the weights of its linear layers
    sides = {
        "ours": lambda: with_engine(engine, work),
        "generate": lambda: with_generate(model, work),
        "gemm": lambda: work.tokens / gemm_seconds(model, work),
    }
    warm = Workload(work.prompts[:4], [8] * 4)
    with_engine(engine, warm)
    with_generate(model, warm)
    figures = {name: median(values) for name, values in alternate(sides, rounds).items()}
    result = {
        "ours": round(figures["ours"], 1),
        "theirs": round(figures["generate"], 1),
        "ratio": round(figures["ours"] / figures["generate"], 2),
        "unit": "tokens/s",
        "share_of_gemm_limit": round(figures["ours"] / figures["gemm"], 3),
        "requests": len(work.prompts),
        "tokens": work.tokens,
    }
    try:
        result["transformers_continuous_batching"] = round(with_continuous_batching(model, work), 1)
    except (RuntimeError, ValueError, ImportError) as error:
        result["transformers_continuous_batching"] = f"does not run here: {error}"
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a smoke test of seconds; writes no result file")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    print(machine())
    result = measure(arguments.small, 1 if arguments.small else arguments.rounds)
    report("engine", result, save=not arguments.small)


if __name__ == "__main__":
    main()
