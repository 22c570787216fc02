"""Which scored answers are trained: masks bool[R] from the graded rewards, before any shaping.

`rewards` [R], `groups` int64[R] of any ids, `valid` bool[R] (scored, with something to train). Rows that are not kept
leave the batch, so denominators count kept tokens and rows only; in the statistics of their group they stay.
"""

from rollick.algorithms.sample_filters.groups import difficulty_keep, spread_keep, uncertainty_keep
from rollick.algorithms.sample_filters.raft import raft_keep, reinforce_rej_keep

__all__ = ["difficulty_keep", "raft_keep", "reinforce_rej_keep", "spread_keep", "uncertainty_keep"]
