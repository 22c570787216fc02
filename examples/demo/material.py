"""What the demo learns from, made on the spot: a tiny untrained model with its own tokenizer, and sums.

The problems are sums like 27+58=. They are split once, so no problem that is evaluated is ever trained on. The
warm-up copies the homework of a pupil who three times in four carries once too often: it teaches what an answer looks
like, and leaves it to the rewards which answers are right.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

HELD_OUT = 200
HOMEWORK = 6_000
RIGHT_SHARE = 0.25
SYMBOLS = ["<pad>", "<end>", "<user>", "<assistant>", *"0123456789+="]
TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '>' + message['content'] + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def write_material(folder: Path, seed: int = 0) -> None:
    """`folder`/model, a Hugging Face folder, and `folder`/data with homework.jsonl, train.jsonl and test.jsonl."""
    write_model(folder / "model", seed)
    write_data(folder / "data", random.Random(seed))


def write_model(folder: Path, seed: int) -> None:
    """A Qwen3 of 0.4 million parameters with random weights and one token per character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, set_seed

    vocabulary = {symbol: index for index, symbol in enumerate(SYMBOLS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    special = {"additional_special_tokens": ["<user>", "<assistant>"], "pad_token": "<pad>", "eos_token": "<end>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=TEMPLATE, **special)
    config = Qwen3Config(
        vocab_size=len(SYMBOLS),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=vocabulary["<end>"],
        pad_token_id=vocabulary["<pad>"],
    )
    set_seed(seed)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_data(folder: Path, source: random.Random) -> None:
    sums = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    source.shuffle(sums)
    test, train = sums[:HELD_OUT], sums[HELD_OUT:]
    folder.mkdir(parents=True, exist_ok=True)
    homework = [(a, b, copied(a + b, source)) for a, b in source.choices(train, k=HOMEWORK)]
    write_rows(folder / "homework.jsonl", [{"prompt": f"{a}+{b}=", "completion": str(c)} for a, b, c in homework])
    for name, problems in (("train", train), ("test", test)):
        rows = [{"prompt": f"{a}+{b}=", "ground_truth": str(a + b)} for a, b in problems]
        write_rows(folder / f"{name}.jsonl", rows)


def copied(right: int, source: random.Random) -> int:
    """What the homework says: the right sum one time in four, otherwise ten too much."""
    return right if source.random() < RIGHT_SHARE else right + 10


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
