"""A tracker of the user's own that fails at start or from some step on."""

from rollick.trackers.base import TrackerOptions

CALLS: list[tuple[str, int]] = []


class FailingTracker:
    def __init__(self, fail_from, recover_at):
        self.fail_from, self.recover_at = fail_from, recover_at

    def log(self, step, metrics):
        if self.fail_from <= step < self.recover_at:
            raise ConnectionError("no route to host")
        CALLS.append(("log", step))

    def close(self):
        raise OSError("cannot close")


class Options(TrackerOptions):
    fail_at_start: bool = False
    fail_from: int = 3
    recover_at: int = 10**9

    def build(self, run_directory, run_name):
        if self.fail_at_start:
            raise ConnectionError(f"no key for {run_name}")
        return FailingTracker(self.fail_from, self.recover_at)
