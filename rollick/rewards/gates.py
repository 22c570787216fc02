"""From the raw values of a task's graders to what counts: gates and clipping.

rewards: [{kind: format, tags: [answer]}, {kind: math, gate: format}]      no format, no pay for the right answer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rollick.config.base import nearest
from rollick.rewards.base import RewardOptions, Score, Verdict


def counted_value(options: RewardOptions, score: Score, verdicts: Mapping[str, Verdict]) -> float:
    """The unweighted value that enters the sum: 0 behind a closed gate, else cut to `clip`."""
    if is_gated(options, verdicts):
        return 0.0
    if options.clip is None:
        return score.value
    return min(max(score.value, options.clip[0]), options.clip[1])


def is_gated(options: RewardOptions, verdicts: Mapping[str, Verdict]) -> bool:
    """Whether the gate's own value stays below `gate_at`. A gate that abstains holds nothing back."""
    gate = verdicts.get(options.gate) if options.gate is not None else None
    return isinstance(gate, Score) and gate.value < options.gate_at


def gate_problems(rewards: Sequence[RewardOptions]) -> list[str]:
    """What is wrong with the gates among the rewards of one environment, one sentence each."""
    labels = [options.label for options in rewards]
    found = []
    for options in rewards:
        if options.gate is None:
            continue
        if options.gate == options.label:
            found.append(f"reward '{options.label}' is its own gate; name another reward")
        elif options.gate not in labels:
            near = nearest(options.gate, labels)
            hint = f"; did you mean '{near}'?" if near else f" (there are: {', '.join(labels)})"
            found.append(f"reward '{options.label}': no reward beside it is called '{options.gate}', its gate{hint}")
    return found
