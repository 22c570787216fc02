"""Rewards for end-to-end tests, loaded by import path like a user's own."""


def share_of_letter_e(response: str) -> float:
    """What a random model can learn in a few steps: say 'e'."""
    return response.count("e") / max(len(response), 1)


def not_a_number(response: str) -> float:
    return float("nan")
