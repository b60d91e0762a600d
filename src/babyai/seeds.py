"""Seed ranges: which episodes are for training, which for validation, which for test figures.

    0 ... 10^9 - 1           training and demonstrations
    10^9 ... 2 * 10^9 - 1    validation: early stopping, choice of the best checkpoint
    2 * 10^9 ...             test: the figures that are reported

A run never draws training episodes from the reserved ranges. Within the training range, endless demonstrations use the
lower half and DAgger's roll-ins the upper half, each run a block of its own.
"""

VALIDATION_SEED = 10**9
TEST_SEED = 2 * 10**9

SEEDS_PER_RUN = 10_000_000
NUM_BLOCKS = 50
FIRST_ROLL_IN_SEED = NUM_BLOCKS * SEEDS_PER_RUN
SEEDS_PER_PPO_RUN = 100


def endless_demos_seed(run_seed: int) -> int:
    """The first seed of a run's endless demonstrations."""
    return run_seed % NUM_BLOCKS * SEEDS_PER_RUN


def roll_in_seed(run_seed: int) -> int:
    """The first seed of the episodes that DAgger's agent plays in a run."""
    return FIRST_ROLL_IN_SEED + run_seed % NUM_BLOCKS * SEEDS_PER_RUN


def ppo_seed(run_seed: int) -> int:
    """The seed of a PPO run's first world, as in the authors' code; world k adds k."""
    return SEEDS_PER_PPO_RUN * run_seed
