"""Tiny model folders for tests: every family the framework knows, made from a config in well under a second.

folder = tiny_model_folder(tmp_path / "model", family="qwen3", seed=0)
model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)   # ByteLevel BPE, ChatML template, eos <|im_end|>
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

Family = Literal["qwen2", "qwen3", "qwen3_moe", "qwen3_5", "llama"]
FAMILIES: tuple[Family, ...] = ("qwen2", "qwen3", "qwen3_moe", "qwen3_5", "llama")
DENSE_FAMILIES: tuple[Family, ...] = ("qwen2", "qwen3", "llama")

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = (
    "What is 1+2? The answer is 3.",
    "user assistant system question answer",
    "the sum of two numbers is a number",
    *["one\n\n\n\ntwo"] * 20,  # line ends merge, as in real vocabularies
    *(f"{a}+{b}={a + b}" for a in range(10) for b in range(10)),
)


def tiny_tokenizer(vocab_size: int = 320, chat_template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """A ByteLevel BPE tokenizer trained from scratch on `CORPUS`: any text round-trips.

    Ids 0, 1, 2 are `<|endoftext|>` (pad), `<|im_start|>`, `<|im_end|>` (eos); there is no BOS. The 256 bytes
    need a `vocab_size` of at least 259; a large one is not filled, so a model may have more rows than there are
    tokens, as real ones do.
    """
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained(vocab_size)),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_template
    return tokenizer


@cache
def _trained(vocab_size: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer.to_str()


def tiny_config(
    family: Family = "qwen3",
    vocab_size: int = 320,
    hidden_size: int = 64,
    layers: int = 2,
    tie: bool = True,
    max_position_embeddings: int = 512,
    **overrides: Any,
) -> PreTrainedConfig:
    """Two layers of width 64 with two heads of 32, grouped keys and values. Qwen3.5 gets one linear-attention
    and one full-attention layer; Qwen3-MoE four experts of which each token takes two."""
    shared: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": hidden_size // 2,
        "max_position_embeddings": max_position_embeddings,
        "tie_word_embeddings": tie,
        "bos_token_id": None,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "initializer_range": 0.05,
    }
    own: dict[Family, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
        "qwen2": (transformers.Qwen2Config, {}),
        "qwen3": (transformers.Qwen3Config, {}),
        "qwen3_moe": (
            transformers.Qwen3MoeConfig,
            {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": hidden_size, "norm_topk_prob": True},
        ),
        "qwen3_5": (
            transformers.Qwen3_5TextConfig,
            {
                "layer_types": ["full_attention" if i % 2 else "linear_attention" for i in range(layers)],
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 2,
                "linear_key_head_dim": 16,
                "linear_value_head_dim": 16,
            },
        ),
        "llama": (transformers.LlamaConfig, {}),
    }
    kind, extra = own[family]
    return kind(**{**shared, **extra, **overrides})


def tiny_model(family: Family = "qwen3", seed: int = 0, **config: Any) -> PreTrainedModel:
    """A float32 model in eval mode with weights drawn from `seed`; the global random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(tiny_config(family, **config), dtype=torch.float32)
    return model.eval()


def tiny_model_folder(
    path: Path, family: Family = "qwen3", seed: int = 0, chat_template: str | None = CHATML, **config: Any
) -> Path:
    """Write a Hugging Face folder (weights, config, generation config, tokenizer, template) and return `path`."""
    model = tiny_model(family, seed, **config)
    model.save_pretrained(path)
    tiny_tokenizer(model.config.vocab_size, chat_template).save_pretrained(path)
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
