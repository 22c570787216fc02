"""The built-in engine: the engine contract on every model family, and what is particular to it."""

import random
from dataclasses import replace
from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma3TextConfig, LlamaConfig, MistralConfig

from rollick.config.base import load_plugin
from rollick.config.job import ModelSettings
from rollick.engines.base import EngineContext, GenerationRequest, Sampling, generate
from rollick.engines.torch_cache import cache_layer_types
from rollick.engines.torch_engine import TorchEngine
from rollick.engines.torch_packing import PackedProduct, unpack_linears
from rollick.errors import ConfigError, DataError, NumericsError
from rollick.models.weights import named_weights
from tests.engines.contract import CONTRACT, Subject
from tests.models.tiny import FAMILIES, tiny_config, tiny_model_folder, tiny_tokenizer

TINY = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "initializer_range": 0.05,
}


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


def engine_of(config, **options) -> TorchEngine:
    torch.manual_seed(0)
    return TorchEngine(AutoModelForCausalLM.from_config(config), **options)


def assert_equal_to_a_plain_forward(engine: TorchEngine, requests: list[GenerationRequest], atol: float = 1e-4) -> None:
    model = engine._runner.model
    unpack_linears(model)
    for r, answer in zip(requests, generate(engine, requests)):
        ids = torch.tensor([[*r.prompt_ids, *answer.token_ids]])
        with torch.no_grad():
            logprobs = model(ids).logits[0, len(r.prompt_ids) - 1 : -1].log_softmax(-1)
        expected = logprobs.gather(-1, ids[0, len(r.prompt_ids) :, None])[:, 0]
        assert answer.logprobs == pytest.approx(expected.tolist(), abs=atol)


def requests_of(lengths, new_tokens=6) -> list[GenerationRequest]:
    rng = random.Random(0)
    return [
        GenerationRequest(
            str(i), tuple(rng.randrange(3, 300) for _ in range(n)), Sampling(max_new_tokens=new_tokens), i
        )
        for i, n in enumerate(lengths)
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_beyond_the_budget_run_in_pieces_and_give_the_same(family):
    requests = requests_of([50, 7, 33, 33, 1, 16])
    small = engine_of(tiny_config(family), prefill_tokens=16)
    assert_equal_to_a_plain_forward(small, requests)


@pytest.mark.parametrize(
    "config",
    [
        MistralConfig(**TINY, sliding_window=8),
        Gemma2Config(**TINY, sliding_window=8, attn_implementation="eager", final_logit_softcapping=5.0),
        Gemma3TextConfig(**TINY, sliding_window=8),
    ],
    ids=lambda config: config.model_type,
)
def test_sliding_windows_and_capped_logits_follow_the_models_own_rules(config):
    assert_equal_to_a_plain_forward(engine_of(config), requests_of([3, 5, 12, 20, 30], new_tokens=12))


def test_a_model_with_an_unknown_kind_of_cache_is_refused_by_name():
    config = LlamaConfig(**TINY)
    config.layer_types = ["full_attention", "hybrid"]
    with pytest.raises(ConfigError, match="model type 'llama': its layers need caches of kind hybrid"):
        cache_layer_types(config)


def test_packed_products_follow_a_weight_update_also_when_embeddings_are_tied():
    """Packed copies do not see a change of their weight: without packing again, the tied head would keep the old
    one and every receipt would still look right."""
    config = tiny_config("llama", hidden_size=256, vocab_size=512, tie=True)
    engine = engine_of(config)
    packed = [m for m in engine._runner.model.modules() if isinstance(m.__dict__.get("forward"), PackedProduct)]
    if not packed:
        pytest.skip("this torch build has no packed products")
    assert engine._runner.model.lm_head in packed
    requests = requests_of([5, 9])
    before = generate(engine, requests)
    torch.manual_seed(1)
    fresh = AutoModelForCausalLM.from_config(config)
    engine.update_weights(1, iter([{n: t.detach() for n, t in named_weights(fresh).items()}]))
    after = generate(engine, requests)
    plain = TorchEngine(fresh, packed_weights=False)
    for new, expected, old in zip(after, generate(plain, requests), before):
        assert new.token_ids == expected.token_ids
        assert new.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
        assert new.logprobs != pytest.approx(old.logprobs, abs=1e-2)


def test_the_engine_owns_its_weights_after_an_update():
    """The sender may go on training in place."""
    engine = engine_of(tiny_config("qwen3"))
    fresh = {name: t.detach().clone() for name, t in named_weights(model_of("qwen3", 1)).items()}
    engine.update_weights(1, iter([fresh]))
    [before] = generate(engine, requests_of([5]))
    for tensor in fresh.values():
        tensor.zero_()
    [after] = generate(engine, requests_of([5]))
    assert after.logprobs == before.logprobs


def test_finished_rows_free_their_compute_and_memory_follows_what_is_alive():
    engine = engine_of(tiny_config("qwen3"), slots=32)
    rows: list[int] = []
    decode = engine._runner.decode
    engine._runner.decode = lambda ids, positions, cache: (rows.append(len(ids)), decode(ids, positions, cache))[1]
    requests = [
        GenerationRequest(str(i), (5, 6, 7), Sampling(max_new_tokens=200 if i == 0 else 1 + i % 8), i)
        for i in range(32)
    ]
    generate(engine, requests)
    assert rows == [sum(r.sampling.max_new_tokens > step for r in requests) for step in range(200)]
    stats = engine.stats()
    per_token = 2 * 2 * 32 * 4  # layers · (key, value) · head_dim · bytes
    assert stats["peak_cache_bytes"] <= 32 * 64 * per_token
    assert stats["cache_bytes"] == 0


def test_nan_weights_stop_with_the_requests_named_and_leave_a_clean_engine():
    engine = engine_of(tiny_config("qwen3"))
    good = {name: t.detach().clone() for name, t in named_weights(model_of("qwen3", 1)).items()}
    bad = {name: torch.full_like(t, float("nan")) for name, t in good.items()}
    engine.update_weights(3, iter([bad]))
    for r in requests_of([4, 6]):
        engine.submit(r)
    with pytest.raises(NumericsError, match="weight version 3 for 2 requests, among them 0, 1") as caught:
        engine.poll()
    assert caught.value.row_ids == ["0", "1"]
    engine.update_weights(4, iter([good]))
    assert [a.logprobs == a.logprobs for a in generate(engine, requests_of([4, 6]))] == [True, True]


def test_requests_that_wait_share_a_prompt_that_ran_before_and_it_is_dropped_afterwards():
    engine = engine_of(tiny_config("qwen3_5"), slots=2)
    ids = tuple(range(10, 40))
    requests = [GenerationRequest(str(i), ids, Sampling(max_new_tokens=2 + i), i, prefix_key="g") for i in range(7)]
    answers = generate(engine, requests)
    assert engine.stats()["prompt_tokens"] == len(ids) - 1
    assert engine._prefixes == {}
    alone = generate(engine_of(tiny_config("qwen3_5")), [replace(r, prefix_key=None) for r in requests])
    assert [a.token_ids for a in answers] == [a.token_ids for a in alone]


def test_equal_keys_with_different_prompts_do_not_share():
    engine = engine_of(tiny_config("qwen3"))
    requests = [replace(r, prefix_key="same") for r in requests_of([9, 9, 9])]
    assert_equal_to_a_plain_forward(engine, requests)
    assert engine.stats()["shared_prompt_tokens"] == 0


def test_the_engine_is_built_from_a_job(tmp_path):
    folder = tiny_model_folder(tmp_path / "model", family="llama")
    options = load_plugin("engines", "torch").model_validate({"kind": "torch", "slots": 3})
    context = EngineContext(ModelSettings(path=str(folder)), tiny_tokenizer(), (2,), max_length=64, device="cpu")
    engine = options.build(context)
    [answer] = generate(engine, requests_of([5]))
    assert 1 <= len(answer.token_ids) <= 6
    engine.close()
    missing = replace(context, model=ModelSettings(path=str(tmp_path / "nothing")))
    with pytest.raises(DataError, match=r"model\.path: .*nothing"):
        options.build(missing)


def test_waiting_requests_join_several_at_once_and_none_is_forgotten():
    engine = engine_of(tiny_config("qwen3"), slots=16)
    joined: list[int] = []
    prefill = engine._runner.prefill
    engine._runner.prefill = lambda prompts: (joined.append(len(prompts)), prefill(prompts))[1]
    requests = [
        replace(r, sampling=Sampling(max_new_tokens=3 + i % 11))
        for i, r in enumerate(requests_of([4 + i % 5 for i in range(61)]))
    ]
    answers = generate(engine, requests)
    assert [len(a.token_ids) for a in answers] == [3 + i % 11 for i in range(61)]
    assert sum(joined) == 61
    assert min(joined[:-1]) >= 2
