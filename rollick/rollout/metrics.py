"""What a batch of groups looked like, as numbers. Names are documented here, in one place.

Of training batches (`rollout_metrics`):

    reward/mean, reward/std                   over all scored episodes (std: population)
    reward/<part>/mean, reward/<part>/std     each grader's raw values, so that parts that cancel can be seen
    reward/<part>/weight                      what the part is multiplied by in the sum (domain/<name>/reward/… when
                                              there are several domains)
    rollout/episodes, /failed, /abstained     counts
    rollout/response_length/{mean,min,max}    sampled tokens, truncated answers included
    rollout/response_length/finished_mean     answers that ended by themselves
    rollout/truncated_share                   cut by a limit, of the episodes that did not fail
    rollout/degenerate_groups                 share of groups whose scored episodes all have one reward (or that
                                              have fewer than two): they teach nothing
    domain/<name>/…                           reward/mean, truncated_share and response_length/mean of a domain,
                                              when there are several

Of evaluations (`evaluation_metrics`), in all and by domain (`evaluation/<domain>/…` when there are several):

    evaluation/accuracy                       share of answers whose reward reaches `success_reward`
    evaluation/avg@n                          mean reward; every task weighs the same
    evaluation/pass@k                         chance that k answers hold a solved one (unbiased)
    evaluation/std_within_prompts             mean over tasks of the spread (population) of their n rewards
    evaluation/std_of_run_means               spread (population) of the n means over all tasks
    evaluation/prompts, /samples, /failed, /abstained, truncated_share, response_length/mean
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from rollick.data.records import Episode, Group

Metrics = dict[str, float]


def rollout_metrics(groups: Sequence[Group], weights: Mapping[str, Mapping[str, float]] | None = None) -> Metrics:
    """Metrics of one training batch. `weights`: reward weight by domain and part, when known.

    Values that do not exist (no scored episode) are left out, never written as 0 or NaN.
    """
    metrics = _rollout_metrics(groups)
    for name, parts in (weights or {}).items():
        prefix = f"domain/{name}/reward" if len(weights or {}) > 1 else "reward"
        metrics.update({f"{prefix}/{part}/weight": weight for part, weight in parts.items()})
    domains = _by_domain(groups)
    if len(domains) > 1:
        kept = ("reward/mean", "rollout/truncated_share", "rollout/response_length/mean")
        for name, members in domains.items():
            found = _rollout_metrics(members)
            metrics.update({f"domain/{name}/{key}": found[key] for key in kept if key in found})
    return metrics


def evaluation_metrics(groups: Sequence[Group], success_reward: float = 1.0, pass_at: Sequence[int] = ()) -> Metrics:
    """Metrics of an evaluation. Failed and abstained answers are counted, and enter nothing else; a task with
    fewer than k graded answers has no pass@k.

    Two tasks with the rewards [1, 0] and [0, 1]: avg@2 0.5, std_within_prompts 0.5, std_of_run_means 0.0.
    Raises ValueError when there is no group.
    """
    if not groups:
        raise ValueError("an evaluation needs at least one task")
    metrics = _evaluation_metrics(groups, success_reward, pass_at, "evaluation")
    domains = _by_domain(groups)
    if len(domains) > 1:
        for name, members in domains.items():
            metrics.update(_evaluation_metrics(members, success_reward, pass_at, f"evaluation/{name}"))
    return metrics


def pass_at_k(samples: int, solved: int, k: int) -> float:
    """Chance that k of `samples` answers, drawn without replacement, hold one of the `solved` ones (the unbiased
    estimator of Chen et al. 2021, arXiv 2107.03374): 1 - C(n-c, k) / C(n, k).

    pass_at_k(samples=4, solved=1, k=2)  # 0.5
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} answers, there are {samples}")
    return 1.0 - math.comb(samples - solved, k) / math.comb(samples, k)


def _rollout_metrics(groups: Sequence[Group]) -> Metrics:
    episodes = [episode for group in groups for episode in group.episodes]
    scored = [episode for group in groups for episode in group.scored]
    metrics: Metrics = {
        **_counts(episodes, "rollout"),
        **_lengths(episodes, "rollout"),
        **_spread("reward", [float(e.reward) for e in scored if e.reward is not None]),
    }
    for part in sorted({part for episode in scored for part in episode.reward_parts}):
        values = [episode.reward_parts[part] for episode in scored if part in episode.reward_parts]
        metrics.update(_spread(f"reward/{part}", values))
    if groups:
        flat = [len({episode.reward for episode in group.scored}) <= 1 for group in groups]
        metrics["rollout/degenerate_groups"] = _mean(flat)
    return metrics


def _evaluation_metrics(groups: Sequence[Group], success: float, pass_at: Sequence[int], prefix: str) -> Metrics:
    episodes = [episode for group in groups for episode in group.episodes]
    rewards = [[float(e.reward) for e in group.scored if e.reward is not None] for group in groups]
    graded = [values for values in rewards if values]
    size = max(len(group.episodes) for group in groups)
    metrics = {f"{prefix}/prompts": float(len(groups)), f"{prefix}/samples": float(len(episodes))}
    metrics.update(_counts(episodes, prefix))
    metrics.update(_lengths(episodes, prefix))
    del metrics[f"{prefix}/episodes"]
    if not graded:
        return metrics
    solved = [[value >= success for value in values] for values in graded]
    metrics[f"{prefix}/accuracy"] = _mean(map(_mean, solved))
    metrics[f"{prefix}/avg@{size}"] = _mean(map(_mean, graded))
    for k in pass_at:
        chances = [pass_at_k(len(hits), sum(hits), k) for hits in solved if len(hits) >= k]
        if chances:
            metrics[f"{prefix}/pass@{k}"] = _mean(chances)
    if size > 1:
        metrics[f"{prefix}/std_within_prompts"] = _mean(map(_std, graded))
        runs = [_run(groups, member) for member in range(size)]
        metrics[f"{prefix}/std_of_run_means"] = _std([_mean(run) for run in runs if run])
    return metrics


def _run(groups: Sequence[Group], member: int) -> list[float]:
    """Rewards of the answers number `member` to every task: one run over the set."""
    return [e.reward for group in groups for e in group.scored if e.member == member and e.reward is not None]


def _counts(episodes: Sequence[Episode], prefix: str) -> Metrics:
    failed = sum(episode.status == "failed" for episode in episodes)
    unscored = sum(episode.reward is None for episode in episodes)
    return {
        f"{prefix}/episodes": float(len(episodes)),
        f"{prefix}/failed": float(failed),
        f"{prefix}/abstained": float(unscored - failed),
    }


def _lengths(episodes: Sequence[Episode], prefix: str) -> Metrics:
    """From the sampled tokens, never from a loss mask, which truncation may have emptied."""
    answered = [episode for episode in episodes if episode.status in ("finished", "truncated")]
    if not answered:
        return {}
    lengths = [episode.response_length for episode in answered]
    metrics = {
        f"{prefix}/response_length/mean": _mean(lengths),
        f"{prefix}/response_length/min": float(min(lengths)),
        f"{prefix}/response_length/max": float(max(lengths)),
        f"{prefix}/truncated_share": _mean(episode.truncated for episode in answered),
    }
    finished = [episode.response_length for episode in answered if not episode.truncated]
    if finished:
        metrics[f"{prefix}/response_length/finished_mean"] = _mean(finished)
    return metrics


def _by_domain(groups: Sequence[Group]) -> dict[str, list[Group]]:
    domains: dict[str, list[Group]] = {}
    for group in groups:
        domains.setdefault(group.task.domain, []).append(group)
    return domains


def _spread(name: str, values: Sequence[float]) -> Metrics:
    return {f"{name}/mean": _mean(values), f"{name}/std": _std(values)} if values else {}


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers)


def _std(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(_mean((value - mean) ** 2 for value in values))
