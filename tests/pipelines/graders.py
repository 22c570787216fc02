"""Rewards for end-to-end tests, loaded by import path like a user's own."""

import os
import time
import zlib

from rollick.data.records import Episode


def share_of_letter_e(response: str) -> float:
    """What a random model can learn in a few steps: say 'e'."""
    return response.count("e") / max(len(response), 1)


def not_a_number(response: str) -> float:
    return float("nan")


def crashes_at_times(episode: Episode) -> float:
    """Takes its worker down with one answer in eight, always the same ones."""
    if zlib.crc32(episode.id.encode()) % 8 == 0:
        os._exit(7)
    return 1.0


def hangs_at_times(episode: Episode) -> float:
    """Never comes back from one answer in sixteen, always the same ones."""
    if zlib.crc32(episode.id.encode()) % 16 == 0:
        time.sleep(3600)
    return 1.0
