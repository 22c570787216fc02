"""What every engine must do: functions over a `Subject`, so that each engine's test file runs the same ones.

@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_contract(check, subject):
    check(subject)
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from rollick.data.records import Completion
from rollick.engines.base import Engine, GenerationRequest, Sampling, generate
from rollick.errors import WorkerError
from rollick.models.hashing import tensor_hash

PATIENCE = 120.0
"""Seconds after which a check that waits gives up."""


@dataclass
class Subject:
    """An engine under test and the truth about its model.

    `engine(**overrides)` makes a fresh engine that serves the weights of seed 0; it takes `slots`, `eos_token_ids`
    (default none) and `max_length` (default 256). `logits(ids, seed)` is the plain forward [T, V] of the same
    model; `weights(seed)` its tensors under Hugging Face names. Ids in [3, vocab) are ordinary tokens.
    """

    engine: Callable[..., Engine]
    logits: Callable[[Sequence[int], int], torch.Tensor]
    weights: Callable[[int], dict[str, torch.Tensor]]
    tokenizer: Any
    vocab: int


def prompt(rng: random.Random, subject: Subject, length: int) -> tuple[int, ...]:
    """Ids 0 to 2 (pad and end tokens) are among them: a mask made by comparing ids would show."""
    return tuple(rng.randrange(0, subject.vocab) for _ in range(length))


def request(name: str, ids: Sequence[int], seed: int = 0, **sampling: Any) -> GenerationRequest:
    return GenerationRequest(name, tuple(ids), Sampling(**{"max_new_tokens": 8, **sampling}), seed)


def truth(subject: Subject, ids: Sequence[int], answer: Completion, sampling: Sampling, seed: int = 0) -> list[Any]:
    """(log-prob, log of kept mass) of each token, by a plain forward and a sort of the whole vocabulary."""
    logits = subject.logits([*ids, *answer.token_ids], seed)[len(ids) - 1 : -1].double()
    probs = (logits / (sampling.temperature or 1.0)).softmax(-1)
    return [
        (float(row[token].log()), float(kept_mass(row, sampling).log())) for row, token in zip(probs, answer.token_ids)
    ]


def kept_mass(probs: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Top-k, then top-p of what is left, then min-p, one token after the other."""
    ordered = probs.sort(descending=True).values
    if sampling.temperature == 0:
        return probs.sum()
    kept = ordered[: sampling.top_k or None]
    count = int((kept.cumsum(0) < sampling.top_p * kept.sum()).sum()) + 1
    kept = kept[:count] if sampling.top_p < 1 else kept
    return kept[kept >= sampling.min_p * ordered[0]].sum()


def drain(engine: Engine, count: int) -> dict[str, Completion]:
    """Poll until `count` completions came."""
    ready: dict[str, Completion] = {}
    deadline = time.monotonic() + PATIENCE
    while len(ready) < count:
        assert time.monotonic() < deadline, f"only {len(ready)} of {count} completions after {PATIENCE} s"
        ready.update(engine.poll(timeout=1.0))
    return ready


CUTS = ({}, {"top_k": 20}, {"top_p": 0.8}, {"min_p": 0.2}, {"top_k": 40, "top_p": 0.9, "min_p": 0.05})


def logprobs_equal_a_plain_forward_at_every_temperature_and_cut(subject: Subject) -> None:
    """Cases 40, 41 (full softmax at the sampling temperature, kept mass beside it) and 32 (masks from lengths)."""
    rng = random.Random(0)
    requests = [
        request(f"{temperature}/{i}/{n}", prompt(rng, subject, n), seed=i, temperature=temperature, **cut)
        for temperature in (0.7, 1.0, 0.0)
        for i, cut in enumerate(CUTS)
        for n in (1, 6, 17)
    ]
    for r, answer in zip(requests, generate(subject.engine(), requests)):
        expected = truth(subject, r.prompt_ids, answer, r.sampling)
        assert answer.logprobs == pytest.approx([a for a, _ in expected], abs=1e-4), r.id
        assert answer.kept_logmass == pytest.approx([b for _, b in expected], abs=1e-4), r.id
        if not any((r.sampling.top_k, r.sampling.top_p < 1, r.sampling.min_p)):
            assert answer.kept_logmass == pytest.approx([0.0] * 8, abs=1e-6)


def greedy_takes_the_likeliest_token_and_is_scored_at_temperature_one(subject: Subject) -> None:
    ids = (5, 9, 7)
    [answer] = generate(subject.engine(), [request("a", ids, temperature=0.0, top_p=0.1)])
    logits = subject.logits([*ids, *answer.token_ids], 0)[len(ids) - 1 : -1]
    assert answer.token_ids == logits.argmax(-1).tolist()
    assert answer.logprobs == pytest.approx(logits.log_softmax(-1).amax(-1).tolist(), abs=1e-4)
    assert answer.kept_logmass == pytest.approx([0.0] * len(answer.token_ids))


def a_request_answers_alike_alone_and_among_many_that_join_and_leave(subject: Subject) -> None:
    rng = random.Random(3)
    requests = [
        request(
            str(i),
            prompt(rng, subject, rng.randrange(1, 24)),
            seed=1000 + i,
            temperature=rng.choice((0.0, 0.7, 1.0, 1.3)),
            max_new_tokens=rng.randrange(1, 16),
            **rng.choice(CUTS),
        )
        for i in range(64)
    ]
    crowded = subject.engine(slots=24)
    together: dict[str, Completion] = {}
    for r in requests:
        crowded.submit(r)
        for _ in range(rng.randrange(0, 3)):
            together.update(crowded.poll(timeout=0))
    together.update(drain(crowded, len(requests) - len(together)))
    alone = subject.engine()
    for r in requests:
        [single] = generate(alone, [r])
        assert together[r.id].token_ids == single.token_ids, r.id
        assert together[r.id].logprobs == pytest.approx(single.logprobs, abs=1e-5), r.id
        assert together[r.id].kept_logmass == pytest.approx(single.kept_logmass, abs=1e-5), r.id


def seeds_alone_decide_and_replicas_agree(subject: Subject) -> None:
    """Cases 94 and 95: other seeds give other answers, the same seed the same one, on any replica."""
    requests = [request(str(i), (5, 6, 7), seed=i, temperature=1.0, max_new_tokens=12) for i in range(8)]
    first = [a.token_ids for a in generate(subject.engine(), requests)]
    second = [a.token_ids for a in generate(subject.engine(), requests)]
    assert first == second
    assert len({tuple(ids) for ids in first}) == 8


def sampled_frequencies_follow_the_kept_probabilities(subject: Subject) -> None:
    sampling = {"temperature": 0.7, "top_k": 4, "max_new_tokens": 1}
    answers = generate(subject.engine(), [request(str(i), (4, 8), seed=i, **sampling) for i in range(1500)])
    probs = (subject.logits((4, 8), 0)[-1] / 0.7).softmax(-1)
    likeliest = probs.topk(4).indices.tolist()
    counts = [sum(a.token_ids == [t] for a in answers) for t in likeliest]
    assert sum(counts) == 1500
    expected = probs[likeliest] / probs[likeliest].sum()
    for count, p in zip(counts, expected.tolist()):
        assert abs(count / 1500 - p) < 5 * (p * (1 - p) / 1500) ** 0.5


def every_end_token_stops_and_is_part_of_the_answer(subject: Subject) -> None:
    """Cases 92 and 93."""
    requests = [request(str(i), (5, 6, 7), seed=i, temperature=1.0, max_new_tokens=12) for i in range(8)]
    free = generate(subject.engine(), requests)
    ends = tuple({a.token_ids[k] for k, a in enumerate(free[:2], 2)})
    stopped = 0
    for answer, whole in zip(generate(subject.engine(eos_token_ids=ends), requests), free):
        hits = [i for i, token in enumerate(whole.token_ids) if token in ends]
        length = hits[0] + 1 if hits else 12
        assert answer.token_ids == whole.token_ids[:length]
        assert answer.finish_reason == ("stop" if hits else "length")
        assert answer.stopped_by == (whole.token_ids[hits[0]] if hits else None)
        stopped += bool(hits)
    assert stopped >= 2


def stop_ids_of_one_request_stop_only_that_request(subject: Subject) -> None:
    [whole] = generate(subject.engine(), [request("a", (5, 6, 7), temperature=1.0)])
    end = whole.token_ids[3]
    requests = [
        request("with", (5, 6, 7), temperature=1.0, stop_token_ids=(end,)),
        request("without", (5, 6, 7), temperature=1.0),
    ]
    with_it, without = generate(subject.engine(), requests)
    length = whole.token_ids.index(end) + 1
    assert with_it.token_ids == whole.token_ids[:length]
    assert (with_it.finish_reason, with_it.stopped_by) == ("stop", end)
    assert without.token_ids == whole.token_ids
    assert (without.finish_reason, without.stopped_by) == ("length", None)


def a_stop_string_ends_the_answer_behind_its_last_token(subject: Subject) -> None:
    """Cases 93 and 99: the sampled ids stay, the token that completes the string included whole."""
    [whole] = generate(subject.engine(), [request("a", (5, 6, 7), seed=4, temperature=1.0, max_new_tokens=16)])
    pieces = [subject.tokenizer.decode(whole.token_ids[:n]) for n in range(17)]
    stop = pieces[9][len(pieces[6]) + 0 :].strip("�")[:3]
    assert stop, "the example needs printable text"
    length = next(n for n in range(17) if stop in pieces[n])
    r = request("b", (5, 6, 7), seed=4, temperature=1.0, max_new_tokens=16, stop=("never there", stop))
    [answer] = generate(subject.engine(), [r])
    assert answer.token_ids == whole.token_ids[:length]
    assert (answer.finish_reason, answer.stopped_by) == ("stop", stop)


def an_aborted_and_resumed_request_ends_like_one_that_ran_through(subject: Subject) -> None:
    rng = random.Random(2)
    requests = [request(str(i), prompt(rng, subject, 5), seed=i, temperature=1.0, max_new_tokens=12) for i in range(6)]
    whole = generate(subject.engine(), requests)
    engine = subject.engine(slots=4)
    for r in requests:
        engine.submit(r)
    deadline = time.monotonic() + PATIENCE
    while engine.stats()["generated_tokens"] < 16:
        assert time.monotonic() < deadline
        engine.poll(timeout=0)
    partial = dict(engine.abort([r.id for r in requests] + ["not there"]))
    assert set(partial) == {r.id for r in requests}
    assert all(p.finish_reason == "abort" for p in partial.values())
    assert partial["5"].token_ids == []
    assert 0 < len(partial["0"].token_ids) < 12
    assert engine.poll(timeout=0) == []
    resumed = [GenerationRequest(r.id, r.prompt_ids, r.sampling, r.seed, resume_from=partial[r.id]) for r in requests]
    for answer, expected in zip(generate(engine, resumed), whole):
        assert answer.token_ids == expected.token_ids
        assert answer.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
        assert answer.finish_reason == "length"


def a_group_computes_its_prompt_once(subject: Subject) -> None:
    ids = tuple(range(10, 30))
    shared = [GenerationRequest(str(i), ids, Sampling(max_new_tokens=6), seed=i, prefix_key="group") for i in range(6)]
    apart = [GenerationRequest(str(i), ids, Sampling(max_new_tokens=6), seed=i) for i in range(6)]
    engine = subject.engine(slots=4)
    for together, alone in zip(generate(engine, shared), generate(subject.engine(), apart)):
        assert together.token_ids == alone.token_ids
        assert together.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
    stats = engine.stats()
    assert stats["prompt_tokens"] <= len(ids)
    assert stats["shared_prompt_tokens"] >= 5 * (len(ids) - 1)


def new_weights_serve_at_once_and_no_prompt_of_the_old_ones_survives(subject: Subject) -> None:
    """Case 109: after the sync the answer is that of a cold engine with the new weights."""
    ids = tuple(range(10, 30))
    greedy = [
        GenerationRequest(str(i), ids, Sampling(temperature=0, max_new_tokens=6), 0, prefix_key="k") for i in range(3)
    ]
    engine = subject.engine(slots=1)
    engine.submit(greedy[0])
    engine.submit(greedy[1])
    [(_, before)] = drain(engine, 1).items()
    fresh = subject.weights(1)
    receipt = engine.update_weights(7, iter([{name: t} for name, t in fresh.items()]))
    assert receipt.version == engine.version == 7
    assert receipt.hashes == {name: tensor_hash(t) for name, t in fresh.items()}
    [(_, after)] = drain(engine, 1).items()
    [again] = generate(engine, [greedy[2]])
    for answer in (after, again):
        expected = truth(subject, ids, answer, greedy[0].sampling, seed=1)
        assert answer.logprobs == pytest.approx([a for a, _ in expected], abs=1e-4)
        logits = subject.logits([*ids, *answer.token_ids], 1)[len(ids) - 1 : -1]
        assert answer.token_ids == logits.argmax(-1).tolist()
        assert answer.versions == [7] * 6
    assert before.versions == [0] * 6
    assert before.token_ids != after.token_ids


def weights_may_change_between_tokens_and_each_token_knows_its_version(subject: Subject) -> None:
    engine = subject.engine()
    engine.submit(request("a", (5, 6, 7), temperature=1.0, max_new_tokens=9))
    deadline = time.monotonic() + PATIENCE
    for version in (1, 2):
        while engine.stats()["generated_tokens"] < 3 * version:
            assert time.monotonic() < deadline
            engine.poll(timeout=0)
        engine.update_weights(version, iter([subject.weights(version)]))
    answer = drain(engine, 1)["a"]
    assert len(answer.token_ids) == 9
    assert answer.versions == sorted(answer.versions)
    assert set(answer.versions) == {0, 1, 2}


def a_wrong_set_of_weights_is_refused_by_name_and_the_old_ones_go_on(subject: Subject) -> None:
    engine = subject.engine()
    r = request("a", (5, 6, 7), temperature=0.0)
    [before] = generate(engine, [r])
    fresh = subject.weights(1)
    name, other = list(fresh)[1], list(fresh)[2]
    wrong: list[tuple[str, dict[str, torch.Tensor]]] = [
        (f"missing {name}", {k: v for k, v in fresh.items() if k != name}),
        ("unexpected model.layers.99.weight", {**fresh, "model.layers.99.weight": torch.zeros(2)}),
        (f"{other} has shape", {**fresh, other: torch.zeros(3, 3, 3)}),
    ]
    for message, weights in wrong:
        with pytest.raises(WorkerError, match=message):
            engine.update_weights(1, iter([{k: v} for k, v in weights.items()]))
        assert engine.version == 0
        [after] = generate(engine, [r])
        assert after.token_ids == before.token_ids
        assert after.logprobs == before.logprobs
    with pytest.raises(ConnectionError):
        engine.update_weights(1, breaking_stream(fresh))
    assert generate(engine, [r])[0].logprobs == before.logprobs


def breaking_stream(weights: dict[str, torch.Tensor]) -> Any:
    """A sender that dies half-way."""
    for name in list(weights)[:3]:
        yield {name: weights[name]}
    raise ConnectionError("sender died")


def impossible_requests_are_refused_with_their_numbers(subject: Subject) -> None:
    engine = subject.engine(max_length=32)
    with pytest.raises(ValueError, match=r"prompt of 30 tokens \+ max_new_tokens 8 = 38 .* limit of 32"):
        engine.submit(request("long", range(3, 33)))
    with pytest.raises(ValueError, match="'none' has an empty prompt"):
        engine.submit(request("none", ()))
    with pytest.raises(ValueError, match="'zero' has max_new_tokens 0"):
        engine.submit(request("zero", (5,), max_new_tokens=0))
    with pytest.raises(ValueError, match="outside the model's vocabulary"):
        engine.submit(request("alien", (subject.vocab,)))
    engine.submit(request("twice", (5,)))
    with pytest.raises(ValueError, match="'twice' is in flight already"):
        engine.submit(request("twice", (5,)))
    assert len(drain(engine, 1)) == 1
    engine.submit(request("twice", (5,)))
    assert len(drain(engine, 1)) == 1


def polling_an_idle_engine_returns_at_once(subject: Subject) -> None:
    engine = subject.engine()
    started = time.monotonic()
    assert engine.poll() == []
    assert engine.abort(["a"]) == []
    assert time.monotonic() - started < 1.0


def a_sleeping_engine_wakes_with_the_same_answers_and_takes_weights(subject: Subject) -> None:
    engine = subject.engine()
    r = request("a", (5, 6, 7), temperature=1.0)
    [before] = generate(engine, [r])
    engine.submit(r)
    with pytest.raises(RuntimeError, match="in flight"):
        engine.sleep()
    engine.abort(["a"])
    engine.sleep()
    engine.wake()
    [after] = generate(engine, [r])
    assert (after.token_ids, after.logprobs) == (before.token_ids, before.logprobs)
    engine.sleep()
    engine.update_weights(1, iter([subject.weights(1)]))
    engine.wake()
    [changed] = generate(engine, [r])
    expected = truth(subject, r.prompt_ids, changed, r.sampling, seed=1)
    assert changed.logprobs == pytest.approx([a for a, _ in expected], abs=1e-4)


def counters_add_up(subject: Subject) -> None:
    engine = subject.engine(slots=2)
    requests = [request(str(i), (5, 6, 7), seed=i, max_new_tokens=n) for i, n in enumerate((1, 4, 9))]
    generate(engine, requests)
    stats = engine.stats()
    assert stats["generated_tokens"] == 1 + 4 + 9
    assert stats["decode_steps"] >= 9
    assert all(isinstance(value, float) for value in stats.values())


CONTRACT = (
    logprobs_equal_a_plain_forward_at_every_temperature_and_cut,
    greedy_takes_the_likeliest_token_and_is_scored_at_temperature_one,
    a_request_answers_alike_alone_and_among_many_that_join_and_leave,
    seeds_alone_decide_and_replicas_agree,
    sampled_frequencies_follow_the_kept_probabilities,
    every_end_token_stops_and_is_part_of_the_answer,
    stop_ids_of_one_request_stop_only_that_request,
    a_stop_string_ends_the_answer_behind_its_last_token,
    an_aborted_and_resumed_request_ends_like_one_that_ran_through,
    a_group_computes_its_prompt_once,
    new_weights_serve_at_once_and_no_prompt_of_the_old_ones_survives,
    weights_may_change_between_tokens_and_each_token_knows_its_version,
    a_wrong_set_of_weights_is_refused_by_name_and_the_old_ones_go_on,
    impossible_requests_are_refused_with_their_numbers,
    polling_an_idle_engine_returns_at_once,
    a_sleeping_engine_wakes_with_the_same_answers_and_takes_weights,
    counters_add_up,
)
