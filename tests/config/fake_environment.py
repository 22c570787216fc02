"""Environment and reward plug-ins of the user's own."""

from pydantic import Field

from rollick.config.base import Settings, plugin
from rollick.environments.base import EnvironmentOptions


class Dataset(Settings):
    path: str
    columns: dict[str, str] = Field(default_factory=dict)


class Options(EnvironmentOptions):
    dataset: Dataset
    rewards: list[plugin("rewards")] = Field(default_factory=list)
