"""Advantage estimators, one family a file. All results are constants: no gradient flows through them."""

from rollick.algorithms.advantages.gae import Gae, bilevel_gae, gae
from rollick.algorithms.advantages.gdpo import gdpo_advantages
from rollick.algorithms.advantages.gigpo import gigpo_advantages, step_returns
from rollick.algorithms.advantages.grpo import grpo_advantages
from rollick.algorithms.advantages.ipa import chunk_returns
from rollick.algorithms.advantages.lite_ppo import lite_ppo_advantages
from rollick.algorithms.advantages.opmd import opmd_advantages
from rollick.algorithms.advantages.opo import opo_advantages
from rollick.algorithms.advantages.pass_at_k import pass_at_k_advantages
from rollick.algorithms.advantages.raft import raft_advantages
from rollick.algorithms.advantages.reinforce import (
    discounted_returns,
    reinforce_advantages,
    rewards_on_last_token,
    turn_returns,
)
from rollick.algorithms.advantages.reinforce_pp import reinforce_pp_advantages, reinforce_pp_baseline_advantages
from rollick.algorithms.advantages.remax import remax_advantages
from rollick.algorithms.advantages.rloo import rloo_advantages

__all__ = [
    "Gae",
    "bilevel_gae",
    "chunk_returns",
    "discounted_returns",
    "gae",
    "gdpo_advantages",
    "gigpo_advantages",
    "grpo_advantages",
    "lite_ppo_advantages",
    "opmd_advantages",
    "opo_advantages",
    "pass_at_k_advantages",
    "raft_advantages",
    "reinforce_advantages",
    "reinforce_pp_advantages",
    "reinforce_pp_baseline_advantages",
    "remax_advantages",
    "rewards_on_last_token",
    "rloo_advantages",
    "step_returns",
    "turn_returns",
]
