"""`kind: boxes`: how well rectangles in the answer cover those of the ground truth (detection and grounding).

    {kind: boxes}                      mean intersection over union of the best pairs, over the larger number of boxes
    {kind: boxes, at: 0.5}             F1 of pairs whose intersection over union reaches 0.5

A box is `[x1, y1, x2, y2]`, corners in any unit that the ground truth shares; in ground truths and answers it may stand
in an object as `bbox_2d` (Qwen) or `bbox`, with a `label`, and then only boxes of one label pair up. The answer is JSON
(see `json_schema`) or, where it is not, every list of four numbers in it.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from pydantic import Field

from rollick.data.records import Episode
from rollick.rewards.answers import Thinking, visible
from rollick.rewards.base import Abstain, RewardOptions, Score, Verdict
from rollick.rewards.json_schema import read_json

Corners = tuple[float, float, float, float]
Box = tuple[Corners, str]
MAX_BOXES = 256
"""An answer with more is one that covers everything: it is worth 0."""

_NUMBER = r"\s*(-?\d{1,9}(?:\.\d{1,9})?)\s*"
_LIST = re.compile(rf"\[{_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}\]")


class BoxesReward:
    """The part `boxes` is the number of boxes in the answer."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        wanted = boxes_of(episode.task.ground_truth)
        if wanted is None:
            return Abstain(self._options.ground_truth_problem(episode.task.ground_truth) or "")
        found = find_boxes(visible(episode.response_text, self._options.thinking) or "")
        parts = {"boxes": float(len(found))}
        if len(found) > MAX_BOXES:
            return Score(0.0, parts)
        overlaps = pair_up(found, wanted)
        if self._options.at is None:
            most = max(len(found), len(wanted))
            return Score(math.fsum(overlaps) / most if most else 1.0, parts)
        hits = sum(overlap >= self._options.at for overlap in overlaps)
        return Score(2.0 * hits / (len(found) + len(wanted)) if found or wanted else 1.0, parts)


def iou(a: Corners, b: Corners) -> float:
    """Intersection over union; 0 for boxes that only touch, and for those without an area.

    iou((0, 0, 2, 2), (1, 0, 3, 2))     # 1/3
    """
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(0.0, width) * max(0.0, height)
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return shared / (areas - shared) if shared > 0 else 0.0


def pair_up(found: list[Box], wanted: list[Box]) -> list[float]:
    """Overlaps of pairs of equal label, the best pair first, no box twice."""
    pairs = [
        (iou(a[0], b[0]), i, j) for i, a in enumerate(found) for j, b in enumerate(wanted) if not b[1] or a[1] == b[1]
    ]
    overlaps, used, met = [], set(), set()
    for overlap, i, j in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if overlap > 0 and i not in used and j not in met:
            overlaps.append(overlap)
            used.add(i)
            met.add(j)
    return overlaps


def find_boxes(text: str) -> list[Box]:
    try:
        boxes = boxes_of(read_json(text))
    except ValueError:
        boxes = None
    if boxes is not None:
        return boxes
    read = [_corners([float(number) for number in numbers]) for numbers in _LIST.findall(text)]
    return [(corners, "") for corners in read if corners is not None]


def boxes_of(value: Any) -> list[Box] | None:
    """The boxes in a document or a ground truth (an object, a list of them, or JSON text); None when there is anything
    else in it."""
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError:
            return None
    if isinstance(value, dict) or (isinstance(value, list) and _corners(value) is not None):
        value = [value]
    if not isinstance(value, list):
        return None
    boxes = [_box(one) for one in value]
    return None if None in boxes else [box for box in boxes if box is not None]


def _box(value: Any) -> Box | None:
    label = ""
    if isinstance(value, dict):
        label = str(value.get("label", "")).strip().casefold()
        value = value.get("bbox_2d", value.get("bbox"))
    corners = _corners(value)
    return None if corners is None else (corners, label)


def _corners(value: Any) -> Corners | None:
    """Four finite numbers with x1 ≤ x2 and y1 ≤ y2."""
    if not isinstance(value, list) or len(value) != 4:
        return None
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in value):
        return None
    if any(not abs(number) < 1e9 for number in value) or value[0] > value[2] or value[1] > value[3]:
        return None
    return (float(value[0]), float(value[1]), float(value[2]), float(value[3]))


class Options(RewardOptions):
    kind: Literal["boxes"] = "boxes"
    thinking: Thinking = "auto"
    """As for `math`."""
    at: float | None = Field(None, gt=0, le=1)
    """Overlap from which a pair counts as found; left out, the overlaps themselves count."""

    def build(self) -> BoxesReward:
        return BoxesReward(self)

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        if boxes_of(ground_truth) is not None:
            return None
        return f"{ground_truth!r:.100} is no box [x1, y1, x2, y2] and no list of boxes"
