"""What an algorithm remembers from one step to the next."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor

from rollick.algorithms.kl_control import AdaptiveKl, FixedKl
from rollick.algorithms.normalization import RunningMoments
from rollick.config.algorithm import AlgorithmSettings


class AlgorithmState:
    """The KL controller and the moments of all rewards so far, one of each per domain; both are in checkpoints.

    state = AlgorithmState(job.algorithm)
    state.kl_coef("arithmetic")                 # kl_coef of the job until the controller has moved it
    state.observe_kl("arithmetic", 0.02, 64)    # after a step of 64 answers with this mean KL
    """

    def __init__(self, algorithm: AlgorithmSettings):
        self._first: FixedKl | AdaptiveKl = FixedKl(algorithm.kl_coef)
        if algorithm.kl_coef and algorithm.kl_target is not None:
            self._first = AdaptiveKl(algorithm.kl_coef, algorithm.kl_target, algorithm.kl_horizon)
        self._kl: dict[str, FixedKl | AdaptiveKl] = {}
        self._moments: dict[str, RunningMoments] = {}

    @property
    def steers_kl(self) -> bool:
        return isinstance(self._first, AdaptiveKl)

    def kl_coef(self, domain: str) -> float:
        return self._kl.get(domain, self._first).coef

    def observe_kl(self, domain: str, kl: float, sequences: int) -> None:
        self._kl[domain] = self._kl.get(domain, self._first).updated(kl, sequences)

    def including(self, domain: str, rewards: Tensor) -> RunningMoments:
        """The moments of a domain's rewards, these ones counted in from now on."""
        self._moments[domain] = self._moments.get(domain, RunningMoments()).including(rewards)
        return self._moments[domain]

    def state(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "kl_coef": {domain: controller.coef for domain, controller in self._kl.items()},
            "reward_moments": {domain: asdict(moments) for domain, moments in self._moments.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Coefficients and moments go on where they were; target and horizon are the job's."""
        for domain, coef in state["kl_coef"].items():
            if isinstance(self._first, AdaptiveKl):
                self._kl[domain] = AdaptiveKl(coef, self._first.target, self._first.horizon)
        self._moments = {domain: RunningMoments(**moments) for domain, moments in state["reward_moments"].items()}
