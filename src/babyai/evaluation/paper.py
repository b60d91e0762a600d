"""Results reported in the paper (Table 4), to compare measurements with."""

from typing import NamedTuple

MISSIONS = 512
"""Number of missions per success rate."""


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
