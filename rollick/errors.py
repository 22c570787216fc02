"""The errors a user can cause, each one clear sentence, each with an exit code."""


class RollickError(Exception):
    """Something went wrong that the message explains: what, where, and what to do about it."""

    exit_code = 1


class ConfigError(RollickError):
    """The job file (or an override) cannot be run as written. `problems` lists every violation found."""

    exit_code = 2

    def __init__(self, problems: str | list[str]):
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class DataError(RollickError):
    """A file of the user's (dataset, model folder, checkpoint) is missing, damaged or of the wrong shape."""

    exit_code = 2


class MissingDependencyError(RollickError):
    """An optional package is needed. The message names the extra that brings it."""

    exit_code = 2


class NumericsError(RollickError):
    """NaN or infinity at a position that is trained on; `row_ids` are the samples concerned."""

    def __init__(self, message: str, row_ids: list[str]):
        self.row_ids = row_ids
        super().__init__(message)


class WorkerError(RollickError):
    """A worker died, hung or raised; the message names role, rank, method and its last words."""


class RewardError(RollickError):
    """Graders failed too often to go on training."""


class InterruptedRun(RollickError):
    """Ctrl-C: the run stopped cleanly after writing a checkpoint."""

    exit_code = 130
