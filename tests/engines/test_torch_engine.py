"""The built-in engine: the engine contract on every model family, and what is particular to it."""

from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM

from rollick.engines.torch import TorchEngine
from rollick.models.weights import named_weights
from tests.engines.contract import CONTRACT, Subject
from tests.models.tiny import FAMILIES, tiny_config, tiny_tokenizer


@cache
def model_of(family: str, seed: int):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(tiny_config(family, initializer_range=0.07)).eval()


def copy_of(family: str):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(tiny_config(family, initializer_range=0.07))


def subject_of(family: str) -> Subject:
    def engine(slots=64, eos_token_ids=(), max_length=256):
        return TorchEngine(copy_of(family), tiny_tokenizer(), eos_token_ids, max_length, slots)

    def logits(ids, seed):
        with torch.no_grad():
            return model_of(family, seed)(torch.tensor([list(ids)])).logits[0]

    def weights(seed):
        return {name: t.detach() for name, t in named_weights(model_of(family, seed)).items()}

    return Subject(engine, logits, weights, tiny_tokenizer(), vocab=320)


@pytest.fixture(params=FAMILIES)
def subject(request) -> Subject:
    return subject_of(request.param)


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_contract(check, subject):
    check(subject)
