"""An engine plug-in of the user's own, so that settings tests load no model code."""

from rollick.config.base import PluginSettings, Settings


class CacheSettings(Settings):
    blocks: int = 8


class Options(PluginSettings):
    slots: int = 4
    cache: CacheSettings = CacheSettings()
