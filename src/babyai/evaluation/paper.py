"""Results reported in the paper, to compare measurements with."""

from typing import Literal, NamedTuple

MISSIONS = 512
"""Number of missions per success rate of Table 4."""
RUNS = 10
"""Number of runs behind each figure of Tables 1 and 3."""

Shade = Literal["better", "worse"]


class Figure(NamedTuple):
    """A cell of a table: mean and population standard deviation over runs."""

    mean: float
    std: float = 0.0
    shade: Shade | None = None
    """Whether the paper marks it as significantly better or worse than the cell to its left."""
    bold: bool = False
    """Whether the paper marks it as successful (99 %)."""


Table = dict[str, dict[str, Figure | None]]
"""Row, then column; None where the paper says "not trainable"."""


def _parse(columns: str, text: str) -> Table:
    """A table from `row | figure | figure`: `+` is shaded as better, `-` as worse, `*` is bold, then mean and std."""
    names = columns.split()
    table: Table = {}
    for line in text.strip().splitlines():
        row, *figures = (part.strip() for part in line.split("|"))
        table[row] = dict(zip(names, map(_parse_figure, figures), strict=True))
    return table


def _parse_figure(text: str) -> Figure | None:
    if text == "not trainable":
        return None
    numbers = [float(word) for word in text.lstrip("+-*").split()]
    shades: dict[str, Shade] = {"+": "better", "-": "worse"}
    return Figure(*numbers, shade=shades.get(text[0]), bold="*" in text)


# Table 1: thousands of episodes until a success rate of 99 %, by PPO.
PPO_ARCHITECTURES = _parse(
    "original original_endpool original_endpool_res",
    """
    GoToRedBallGrey | 21 5     | 21 6      | 21 5
    GoToRedBall     | 273 27   | +200 16   | 179 17
    GoToLocal       | 1311 251 | +381 30   | -437 45
    PickupLoc       | 1797 290 | +743 132  | 710 166
    PutNextLocal    | 2984 172 | +2169 739 | +1009 128
    GoTo            | 1601 463 | +454 69   | -813 278
    """,
)
PPO_REPRESENTATIONS = _parse(
    "original_endpool_res bow_endpool_res pixels_endpool_res",
    """
    GoToRedBallGrey | 21 5     | 24 2     | -34 4
    GoToRedBall     | 179 17   | 177 2    | +172 2
    GoToLocal       | 437 45   | 611 760  | 242 15
    PickupLoc       | 710 166  | 982 266  | 1082 385
    PutNextLocal    | 1092 143 | +876 104 | not trainable
    GoTo            | 813 278  | 817 502  | not trainable
    """,
)
# With half the learning rate.
PPO_LOW_LEARNING_RATE = _parse(
    "original_endpool_res bow_endpool_res pixels_endpool_res",
    """
    GoToRedBallGrey | 35 5     | 30 4     | -44 11
    GoToRedBall     | 263 22   | +164 3   | +155 5
    GoToLocal       | 606 81   | 449 176  | 336 28
    PickupLoc       | 1732 579 | 1461 422 | 1308 421
    PutNextLocal    | 1277 252 | 876 104  | 1301 320
    GoTo            | 984 484  | 803 525  | 845 329
    """,
)

# Table 2: frames per second of PPO, mean and standard deviation over the six levels of Table 1.
SPEED = {
    "original": Figure(1139, 128),
    "original_endpool": Figure(927, 72),
    "original_endpool_res": Figure(907, 69),
    "bow_endpool_res": Figure(855, 58),
    "pixels_endpool_res": Figure(540, 67),
}

# Table 3: success rate in percent of imitation learning, by level and thousands of demonstrations.
IMITATION = _parse(
    "original original_endpool_res bow_endpool_res",
    """
    GoToRedBallGrey 5   | *99.5 0.1 | *99.5 0.1  | +*99.7 0.1
    GoToRedBallGrey 10  | *99.7     | *99.8 0.1  | +*99.9
    GoToRedBallGrey 50  | *100      | +*100      | *100
    GoToRedBallGrey 100 | *100      | +*100      | +*100
    GoToRedBallGrey 500 | *100      | *100       | *100
    GoToRedBall 5       | 89.6 0.3  | +91.3 0.6  | +*99.3 0.3
    GoToRedBall 10      | 93.1 0.8  | +95.6 0.7  | +*99.8 0.1
    GoToRedBall 50      | *99.2 0.2 | +*99.9     | +*100
    GoToRedBall 100     | *99.7     | +*100      | *100
    GoToRedBall 500     | *99.9     | +*100      | *100
    GoToLocal 5         | 72.5 1.0  | 71.6 1.4   | +84.2 2.0
    GoToLocal 10        | 79.9 1.2  | 79.7 1.8   | +94.2 0.8
    GoToLocal 50        | 95.3 0.5  | +*99.6 0.1 | +*99.8 0.1
    GoToLocal 100       | *97.8 0.3 | +*99.9     | *99.9
    GoToLocal 500       | *99.6 0.1 | +*100      | *100
    PutNextLocal 5      | 22.3 1.7  | -12.0 1.8  | 12.5 1.2
    PutNextLocal 10     | 39.1 3.5  | -16.2 2.3  | +24.9 3.2
    PutNextLocal 50     | 80.8 1.4  | +90.6 3.5  | 88.6 11.0
    PutNextLocal 100    | 93.9 0.4  | +*99.5 0.1 | *99.5 0.5
    PutNextLocal 500    | *99.3 0.2 | +*100      | +*100
    PickupLoc 5         | 53.0 1.3  | -35.9 1.5  | +60.3 1.8
    PickupLoc 10        | 65.3 1.5  | -53.7 1.2  | +74.9 3.9
    PickupLoc 50        | 90.8 1.5  | +96.2 0.5  | +97.0 0.3
    PickupLoc 100       | 96.4 0.5  | +*98.5 0.4 | *98.6 0.3
    PickupLoc 500       | *99.5 0.2 | +*99.8 0.1 | *99.8 0.1
    GoTo 10             | 70.4 1.1  | +76.3 5.0  | +96.1 0.4
    GoTo 100            | 94.9 0.3  | +*99.3 0.1 | *99.4
    """,
)


class Baseline(NamedTuple):
    """A row of Table 4: a big agent trained on a million demonstrations, and the lengths of these demonstrations."""

    success_10: float
    """Success rate of BabyAI 1.0, in percent."""
    success_11: float
    """Success rate of BabyAI 1.1, in percent."""
    demo_length: float
    """Mean number of steps of a demonstration."""
    demo_length_std: float
    """Standard deviation of the number of steps."""


BASELINES = {
    "GoToObj": Baseline(100.0, 100.0, 5.18, 2.38),
    "GoToRedBallGrey": Baseline(100.0, 100.0, 5.81, 3.29),
    "GoToRedBall": Baseline(100.0, 100.0, 5.38, 3.13),
    "GoToLocal": Baseline(99.8, 100.0, 5.04, 2.76),
    "PutNextLocal": Baseline(99.2, 100.0, 12.4, 4.54),
    "PickupLoc": Baseline(99.4, 100.0, 6.13, 2.97),
    "GoToObjMaze": Baseline(99.9, 100.0, 70.8, 48.9),
    "GoTo": Baseline(99.4, 100.0, 56.8, 46.7),
    "Pickup": Baseline(99.0, 100.0, 57.8, 46.7),
    "UnblockPickup": Baseline(99.0, 100.0, 57.2, 50.0),
    "Open": Baseline(100.0, 100.0, 31.5, 30.5),
    "Unlock": Baseline(98.4, 100.0, 81.6, 61.1),
    "PutNext": Baseline(98.8, 99.6, 89.9, 49.6),
    "Synth": Baseline(97.3, 100.0, 50.4, 49.3),
    "SynthLoc": Baseline(97.9, 100.0, 47.9, 47.9),
    "GoToSeq": Baseline(95.4, 96.7, 72.7, 52.2),
    "SynthSeq": Baseline(87.7, 93.9, 81.8, 61.3),
    "GoToImpUnlock": Baseline(87.2, 84.0, 110.0, 81.9),
    "BossLevel": Baseline(77.0, 90.4, 84.3, 64.5),
}
