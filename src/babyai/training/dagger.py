"""DAgger (Ross et al. 2011): the agent acts, and the expert says what it should have done.

An agent that only imitates never sees where its own mistakes lead. Here it does, in one of two ways. "states": in some
lanes of each chunk the agent plays missions of its own, and an expert that can go on from anywhere labels each state
that it comes to; the other lanes are demonstrations. "missions": the expert demonstrates missions that the agent fails,
and the set of demonstrations grows by them, as in a script of the authors. That one lets the set grow by a fifth and
begins with a new network each time; here it grows after each epoch, and the network goes on.
"""

from dataclasses import dataclass
from typing import Literal

from babyai.agents.actor import observe_for
from babyai.training.feed import Feed, page_locked
from babyai.training.grown import GrowingSource, Growth
from babyai.training.imitation import (
    ImitationOptions,
    check_file,
    count_lanes,
    learning,
    make_learner,
    make_replay,
    open_source,
    prepare,
    read_weights,
)
from babyai.training.labeled import LabeledPlay, MixedChunks
from babyai.training.panel import Panel
from babyai.training.session import Session, Stop
from babyai.training.turns import Turns, finish

Variant = Literal["states", "missions"]
# The agent's own missions: far from the seeds of demonstrations, below those of validation, and others in each run.
FIRST_SEED = 500_000_000
SEEDS_A_RUN = 10_000_000
RUNS = 50
MOST_PROBED = 1_000_000


@dataclass(frozen=True)
class DaggerOptions(ImitationOptions):
    """Learn from demonstrations, and from an expert's advice on what the agent itself runs into."""

    variant: Variant = "states"
    """states: the agent acts in part of each update, and the expert labels every state it visits. missions: the
    demonstrations grow after each epoch by missions that the agent fails."""
    share: float = 0.5
    """states: which part of an update the agent plays itself; the rest are demonstrations."""
    greedy: bool = False
    """states: do what is likeliest, rather than draw from the policy."""
    probe: int = 512
    """missions: how many missions of each level the agent plays after an epoch, to find those that it fails."""
    grow: int | None = None
    """missions: at most so many demonstrations are added after an epoch; a quarter of the first ones unless told."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in ("states", "missions"):
            raise ValueError(f"unknown variant {self.variant!r}; DAgger learns from 'states' or from 'missions'")
        if not 0 < self.share < 1:
            raise ValueError(f"the agent's share of an update must lie between 0 and 1, not be {self.share}")
        if self.variant == "missions" and self.endless:
            raise ValueError("endless demonstrations cannot grow; say --demos N or --file FILE, or --variant states")
        if not 1 <= self.probe <= MOST_PROBED:
            raise ValueError(f"between 1 and {MOST_PROBED} missions can be probed, not {self.probe}")
        if self.grow is not None and self.grow < 1:
            raise ValueError(f"the demonstrations must grow by at least 1 at a time, not by {self.grow}")

    @property
    def first_seed(self) -> int:
        """The seed of the first mission that the agent plays while it learns."""
        return FIRST_SEED + self.seed % RUNS * SEEDS_A_RUN


def train(options: DaggerOptions, *, stop: Stop = lambda: False) -> Session:
    """Trains until the epochs or the patience are over; the run's folder has everything, and a closed session is given.

    Every frame that is learned from has been labeled by the expert. Beside all `frames`, each row says how many
    `labelled_frames` were labeled for this agent: the states that it visited, or those of the demonstrations added.
    """
    return finish(training(options, stop=stop))


def training(
    options: DaggerOptions, *, panel: tuple[Panel, int] | None = None, stop: Stop = lambda: False
) -> Turns[Session]:
    """As `train`, in turns with others.

    Args:
        options: What was asked for.
        panel: Where to show it, and as which line, if several runs go side by side.
        stop: Asked after each update whether to stop early; the run can be resumed.
    """
    check_file(options)
    with Session(options, "dagger", panel) as session:
        yield from (learn_states if options.variant == "states" else learn_missions)(options, session, stop)
    return session


def learn_states(options: DaggerOptions, session: Session, stop: Stop) -> Turns[None]:
    """Learns from demonstrations and labeled play, side by side."""
    protocol, source = options.resolve(), open_source(options, session)
    lanes = max(2, count_lanes(protocol, source))
    acting = min(lanes - 1, max(1, round(options.share * lanes)))
    weights = read_weights(options)
    play = LabeledPlay(
        session.model,
        acting,
        source.levels,
        rules=source.rules,
        weights=None if weights is None else [weights[level.name] for level in source.levels],
        first_seed=options.first_seed,
        seed=options.seed,
        precision=session.precision,
        greedy=options.greedy,
    )
    replay = make_replay(protocol, source, lanes - acting, session.device, observe_for(session.model))
    on_gpu = session.device.type == "cuda"
    chunks = MixedChunks(replay, play, page_locked(1, replay.steps, lanes, replay.kind)[0] if on_gpu else None)
    learner = make_learner(options, protocol, session, lanes)
    try:
        yield from learning(
            options, protocol, session, chunks, Feed(chunks, session.device), learner, stop, play.measures
        )
    finally:
        chunks.close()


def learn_missions(options: DaggerOptions, session: Session, stop: Stop) -> Turns[None]:
    """Learns from demonstrations, to which those of failed missions are added."""
    protocol, source = options.resolve(), open_source(options, session, GrowingSource)
    assert isinstance(source, GrowingSource)
    replay, feed, learner = prepare(options, protocol, source, session)
    growth = Growth(session, replay, source, first_seed=options.first_seed, probe=options.probe, most=options.grow)
    try:
        yield from learning(options, protocol, session, replay, feed, learner, stop, growth)
    finally:
        replay.close()
