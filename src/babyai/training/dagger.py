"""DAgger (Ross et al. 2011): imitation learning on the states that the agent itself visits.

An agent that only imitates never sees where its own mistakes lead. Here, part of each batch are roll-ins: the agent
plays, and an expert that can continue from any state labels what it should have done. The rest are demonstrations.
"""

from typing import Any

from babyai.agents.policy import observation_kind
from babyai.demos.sources import DemoSource
from babyai.seeds import roll_in_seed
from babyai.training.dagger_rollouts import DaggerBatches, LabeledRollouts
from babyai.training.fit import Session, Stop, fit
from babyai.training.imitation import Imitation, make_replay
from babyai.training.options import DaggerOptions
from babyai.training.prefetch import page_locked_batches


def train(options: DaggerOptions, *, resume: bool = False, stop: Stop = lambda: False) -> Session:
    """Trains until the epochs are over or validation stops improving; see `fit`."""
    return fit(options, Dagger, resume=resume, stop=stop)


class Dagger(Imitation):
    """Imitation learning whose batches contain roll-ins. Log rows count them in `labeled_frames`."""

    name = "dagger"
    supports_torchrun = False

    def open_batches(self, session: Session, source: DemoSource, lanes: int) -> tuple[Any, int]:
        """Demonstrations and roll-ins side by side."""
        options = self.options
        assert isinstance(options, DaggerOptions)
        lanes = max(2, lanes)
        playing = min(lanes - 1, max(1, round(options.roll_in_fraction * lanes)))
        weights = options.parse_level_weights()
        self.rollouts = LabeledRollouts(
            session.policy,
            playing,
            source.levels,
            rules=source.rules,
            weights=None if weights is None else [weights[level.name] for level in source.levels],
            first_seed=roll_in_seed(options.seed),
            seed=options.seed,
            precision=session.precision,
            greedy=options.greedy,
        )
        kind = observation_kind(session.policy)
        replay = make_replay(self.hyper, source, lanes - playing, session.device, kind)
        on_gpu = session.device.type == "cuda"
        buffer = page_locked_batches(1, replay.steps, lanes, kind)[0] if on_gpu else None
        return DaggerBatches(replay, self.rollouts, buffer), lanes

    def metrics(self) -> dict[str, Any]:
        """The row of an epoch, with statistics of the roll-ins."""
        return super().metrics() | self.rollouts.metrics()
