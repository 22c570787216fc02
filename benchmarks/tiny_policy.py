"""A ~19M-parameter Llama-shaped model with a vocabulary of 49,152, for benchmarks that need no download.

Small layers under a large vocabulary are where post-training spends time in the wrong places: on logits. The model
is warmed on made-up texts whose lengths are geometric, so that its answers end anywhere between one token and the
limit, as the answers of real models do.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

VOCABULARY = 49_152
END, PAD = "<end>", "<pad>"
ANSWER_WORDS = 300
WARM_STEPS, WARM_ROWS, WARM_TOKENS, WARM_LEARNING_RATE = 60, 8, 48, 3e-3


def make_policy(folder: Path, mean_length: int, seed: int = 0) -> None:
    """Write the warmed model and its word-level tokenizer (`w0 w1 …`) as a Hugging Face folder."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    set_seed(seed)
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    warm(model, tokenizer, mean_length, random.Random(seed))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [END, PAD, *(f"w{i}" for i in range(VOCABULARY - 2))]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, pad_token=PAD, unk_token="w0")


def warm(model: Any, tokenizer: Any, mean_length: int, source: random.Random) -> None:
    """Teach it the marginal: few words, and an end token with probability 1 / mean_length at every position."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=WARM_LEARNING_RATE, weight_decay=0.0)
    for step in range(WARM_STEPS):
        for group in optimizer.param_groups:
            group["lr"] = WARM_LEARNING_RATE * (1 - step / WARM_STEPS)
        texts = [text(source, mean_length) + f" {END}" for _ in range(WARM_ROWS)]
        rows = [torch.tensor(tokenizer(one).input_ids[:WARM_TOKENS]) for one in texts]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)
        logits = model(ids.clamp(min=0)).logits[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def text(source: random.Random, mean_length: int) -> str:
    """Words in a number that is geometric with this mean."""
    words = [word(source, ANSWER_WORDS)]
    while source.random() > 1 / mean_length:
        words.append(word(source, ANSWER_WORDS))
    return " ".join(words)


def word(source: random.Random, among: int = VOCABULARY - 2) -> str:
    return f"w{source.randrange(among)}"


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
