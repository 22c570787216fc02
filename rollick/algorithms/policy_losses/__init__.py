"""Policy losses, one family a file. Each returns a loss per live token [M], to be minimised, that
`aggregation.aggregate` turns into a number."""

from rollick.algorithms.policy_losses.ppo import PpoClipped, ppo_clipped, ppo_loss

__all__ = ["PpoClipped", "ppo_clipped", "ppo_loss"]
