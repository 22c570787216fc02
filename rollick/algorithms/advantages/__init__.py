"""Advantage estimators, one family a file. All results are constants: no gradient flows through them."""

from rollick.algorithms.advantages.grpo import grpo_advantages

__all__ = ["grpo_advantages"]
