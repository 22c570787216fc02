from rollick.rewards.base import RewardOptions


class Options(RewardOptions):
    pattern: str = ".*"
