"""The tiny folders that all tests build on are real Hugging Face folders."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.models.tiny import FAMILIES, tiny_model_folder, tiny_tokenizer


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tie", [True, False])
def test_a_tiny_folder_loads_in_transformers_and_is_fixed_by_its_seed(tmp_path, family, tie):
    models = [
        AutoModelForCausalLM.from_pretrained(tiny_model_folder(tmp_path / str(i), family, seed=seed, tie=tie))
        for i, seed in enumerate((0, 0, 1))
    ]
    ids = torch.tensor([[5, 6, 7, 8]])
    first, same, other = [m(ids).logits for m in models]
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert models[0].config.tie_word_embeddings is tie


def test_the_tiny_tokenizer_round_trips_any_text_and_survives_saving(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_folder(tmp_path))
    text = "Ünïcode 7+8=15\n 🙂"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id) == (0, 2, None)
    assert tokenizer.chat_template == tiny_tokenizer().chat_template
    assert 259 <= len(tokenizer) <= 320
