"""Policy losses, one family a file. Each returns a loss per live token [M], to be minimised, that
`aggregation.aggregate` turns into a number.

A loss that is one value per answer or segment gives it to each of the tokens; `sequence_mean_token_mean` then is the
mean over answers.
"""

from rollick.algorithms.policy_losses.cispo import cispo_loss
from rollick.algorithms.policy_losses.covariance import (
    clip_cov_loss,
    clip_cov_selection,
    kl_cov_loss,
    kl_cov_selection,
    token_covariance,
)
from rollick.algorithms.policy_losses.decoupled_ppo import decoupled_ppo_loss, interpolated_proximal
from rollick.algorithms.policy_losses.dppo import dppo_keep, dppo_loss
from rollick.algorithms.policy_losses.dro import dro_loss
from rollick.algorithms.policy_losses.gmpo import gmpo_loss
from rollick.algorithms.policy_losses.gspo import gspo_loss, gspo_token_loss, segment_ppo_loss
from rollick.algorithms.policy_losses.ipa import ipa_loss
from rollick.algorithms.policy_losses.opmd import kimi_sequence_loss, kimi_token_loss, opmd_loss
from rollick.algorithms.policy_losses.ppo import PpoClipped, ppo_clipped, ppo_loss
from rollick.algorithms.policy_losses.reinforce import policy_gradient_loss, tis_loss
from rollick.algorithms.policy_losses.sao import sao_loss
from rollick.algorithms.policy_losses.sapo import sapo_loss
from rollick.algorithms.policy_losses.topr import topr_loss

__all__ = [
    "PpoClipped",
    "cispo_loss",
    "clip_cov_loss",
    "clip_cov_selection",
    "decoupled_ppo_loss",
    "dppo_keep",
    "dppo_loss",
    "dro_loss",
    "gmpo_loss",
    "gspo_loss",
    "gspo_token_loss",
    "interpolated_proximal",
    "ipa_loss",
    "kimi_sequence_loss",
    "kimi_token_loss",
    "kl_cov_loss",
    "kl_cov_selection",
    "opmd_loss",
    "policy_gradient_loss",
    "ppo_clipped",
    "ppo_loss",
    "sao_loss",
    "sapo_loss",
    "segment_ppo_loss",
    "tis_loss",
    "token_covariance",
    "topr_loss",
]
