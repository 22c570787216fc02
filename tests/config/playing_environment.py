"""An environment whose steps pay rewards of their own."""

from typing import ClassVar

from rollick.environments.base import EnvironmentOptions


class Options(EnvironmentOptions):
    pays_rewards: ClassVar[bool] = True
