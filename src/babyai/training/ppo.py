"""Proximal policy optimization with memory, as in appendix B of the paper and, where it is silent, the authors' code.

64 worlds play 40 steps each; the 2 560 frames are learned from in 4 epochs of two minibatches, in pieces of 20 steps.
"""

import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from babyai.agents.actor import count_words
from babyai.agents.captured import Captured, compile_part
from babyai.agents.device import Precision
from babyai.agents.precision import Working
from babyai.agents.unroll import Statistics, Steps, Unroller
from babyai.demos.sources import RESERVED
from babyai.engine import Engine
from babyai.training.efficiency import SampleEfficiency, usual_window
from babyai.training.feed import pad_missions
from babyai.training.optimizer import descend, find_gradients, learning_state, make_adam
from babyai.training.options import TrainingOptions, check_counts, check_positive
from babyai.training.panel import Panel
from babyai.training.rollout import Collector, Rollout
from babyai.training.session import Session, Stop
from babyai.training.turns import Turns, finish, waiting

MEASURES = ("policy_loss", "value_loss", "entropy", "value", "gradient_norm")
# The authors write a row of results every so many updates.
UPDATES_A_ROW = 10


@dataclass(frozen=True)
class PPOSettings:
    """The numbers of appendix B; those that the paper does not give are the authors' code's."""

    worlds: int = 64
    """How many worlds are played side by side."""
    steps: int = 40
    """How many steps each of them plays between updates."""
    recurrence: int = 20
    """Over how many steps gradients flow back; the memory before them is the one the agent had."""
    minibatches: int = 2
    """Into how many parts each epoch divides the frames (1 280 frames each in the paper)."""
    epochs: int = 4
    """How often each frame is learned from."""
    learning_rate: float = 1e-4
    """Adam's; 5e-5 in the paper's second table of visual representations."""
    discount: float = 0.99
    """Gamma."""
    gae_lambda: float = 0.99
    """Lambda of generalized advantage estimation."""
    clip: float = 0.2
    """How far policy and value may move from those that acted."""
    value_weight: float = 0.5
    """The value loss in the sum."""
    entropy: float = 0.01
    """What an undecided policy is worth."""
    reward_scale: float = 20.0
    """Rewards are multiplied by this before learning; it is in the authors' code only."""
    max_gradient: float = 0.5
    """Gradients longer than this are cut to it."""

    def __post_init__(self) -> None:
        check_counts(self, "worlds", "steps", "recurrence", "minibatches", "epochs")
        check_positive(self, "learning_rate")
        if self.steps % self.recurrence:
            raise ValueError(f"recurrence {self.recurrence} does not divide the {self.steps} steps between updates")
        if self.pieces % self.minibatches:
            raise ValueError(f"{self.minibatches} minibatches do not divide the {self.pieces} pieces of a rollout")

    @property
    def pieces(self) -> int:
        """How many pieces of `recurrence` steps a rollout consists of."""
        return self.worlds * (self.steps // self.recurrence)

    @property
    def frames_an_update(self) -> int:
        """How many frames are played between updates."""
        return self.worlds * self.steps


def estimate_advantages(rollout: Rollout, settings: PPOSettings) -> np.ndarray:
    """Generalized advantage estimates, (T, N); an episode's end is its end, also when its time ran out."""
    rewards, going_on = settings.reward_scale * rollout.rewards, (~rollout.ended).astype(np.float32)
    advantages = np.empty_like(rewards)
    later = np.zeros(rewards.shape[1], dtype=np.float32)
    for step in reversed(range(len(rewards))):
        surprise = rewards[step] + settings.discount * going_on[step] * rollout.values[step + 1] - rollout.values[step]
        later = surprise + settings.discount * settings.gae_lambda * going_on[step] * later
        advantages[step] = later
    return advantages


def ppo_loss(
    settings: PPOSettings,
    logits: Tensor,
    values: Tensor,
    actions: Tensor,
    old_log_probs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
) -> tuple[Tensor, Tensor]:
    """The loss, and what to add to the totals: 1, and the `MEASURES` but for the last.

    logits: (R, B, 7), all others: (R, B).
    """
    clip, all_log_probs = settings.clip, logits.log_softmax(2)
    entropy = -(all_log_probs.exp() * all_log_probs).sum(2).mean()

    ratio = (all_log_probs.gather(2, actions[..., None].long())[..., 0] - old_log_probs).exp()
    policy_loss = -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()

    returns = old_values + advantages
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    value_loss = torch.max((values - returns) ** 2, (clipped - returns) ** 2).mean()

    loss = policy_loss + settings.value_weight * value_loss - settings.entropy * entropy
    return loss, torch.stack([torch.ones_like(loss), policy_loss, value_loss, entropy, values.mean()]).detach()


class PPO:
    """A model, the worlds it acts in, and its optimizer.

    Args:
        model: On its device already.
        engine: `settings.worlds` worlds, reset once already.
        settings: The algorithm's numbers.
        seed: Decides which actions are drawn and how minibatches are mixed.
        statistics: See `Unroller`.
        precision: "float32", or "bf16" with weights in float32.
        fast: Compile and record on a GPU.
    """

    def __init__(
        self,
        model: nn.Module,
        engine: Engine,
        settings: PPOSettings,
        *,
        seed: int = 0,
        statistics: Statistics = "chunk",
        precision: Precision = "float32",
        fast: bool = True,
    ) -> None:
        self.model, self.working, self.settings = model, Working(model, precision), settings
        self.device = next(model.parameters()).device
        # The authors leave batch norm in training mode while acting: it averages over the worlds of that step.
        model.train()
        self.collector = Collector(
            self.working.model,
            engine,
            settings.steps,
            settings.recurrence,
            seed=seed,
            fast=fast,
            exact=precision == "float32",
        )
        self.generator = np.random.default_rng([seed, 1])
        self.optimizer = make_adam(model, settings.learning_rate)
        self.totals = torch.zeros(1 + len(MEASURES), dtype=torch.float64, device=self.device)
        on_gpu = fast and self.device.type == "cuda"
        self._unroll = Unroller(self.working.model, statistics, compiled=on_gpu)
        self._find_loss = compile_part(ppo_loss) if on_gpu else ppo_loss
        self._learn = Captured(self._learn_all, self.device, self._changes, enabled=fast, exact=precision == "float32")
        self._words = 0

    def update(self) -> Rollout:
        """Plays and learns once; returns what was played."""
        return finish(self.updating())

    def updating(self) -> Turns[Rollout]:
        """Plays and learns once, giving way to others meanwhile."""
        rollout = yield from self.collector.collecting()
        advantages = estimate_advantages(rollout, self.settings)
        chunk = rollout.chunk
        missions, index = pad_missions(chunk)
        self._words = count_words(missions, self._words, self.device)
        arrays = [chunk.images, chunk.directions, rollout.last_actions, chunk.first, index, chunk.actions]
        arrays += [rollout.log_probs, rollout.values[:-1], advantages]
        pieces = [torch.from_numpy(self._cut(array)) for array in arrays]
        words = torch.from_numpy(np.ascontiguousarray(missions[:, : self._words]))
        memories = torch.cat(rollout.memories)  # (P, D)
        self._learn(torch.from_numpy(self._mix()), words, memories, *pieces)
        return rollout

    def measures(self) -> dict[str, float]:
        """Means over the minibatches since the last call; waits for the device."""
        count, *sums = self.totals.tolist()
        self.totals.zero_()
        return {name: total / max(1.0, count) for name, total in zip(MEASURES, sums, strict=True)}

    def _cut(self, array: np.ndarray) -> np.ndarray:
        """(T, N, ...) -> (R, P, ...): pieces of R steps side by side, those of the first R steps first."""
        steps, worlds, *rest = array.shape
        length = self.settings.recurrence
        pieces = array.reshape(steps // length, length, worlds, *rest).swapaxes(0, 1)
        return np.ascontiguousarray(pieces).reshape(length, -1, *rest)

    def _mix(self) -> np.ndarray:
        """(epochs * minibatches, pieces of a minibatch): which pieces each step of Adam learns from."""
        settings = self.settings
        orders = [self.generator.permutation(settings.pieces) for _ in range(settings.epochs)]
        return np.stack(orders).reshape(settings.epochs * settings.minibatches, -1)

    def _learn_all(self, orders: Tensor, missions: Tensor, memories: Tensor, *pieces: Tensor) -> None:
        for order in orders.unbind(0):
            self._learn_from(missions, memories[order], *(piece[:, order] for piece in pieces))

    def _learn_from(self, missions: Tensor, memories: Tensor, *pieces: Tensor) -> None:
        """One step of Adam on one minibatch; all of `pieces` are (R, B, ...)."""
        images, directions, last_actions, first, index, *outcome = pieces
        logits, values, _ = self._unroll(Steps(images, directions, last_actions, first, missions, index), memories)
        loss, measured = self._find_loss(self.settings, logits, values, *outcome)
        find_gradients(loss, self.working)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_gradient)
        descend(self.working, self.optimizer)
        self.totals += torch.cat([measured, norm[None]])

    def _changes(self) -> list[Tensor]:
        return [*learning_state(self.working, self.optimizer), self.totals]

    def tensors(self) -> dict[str, Tensor]:
        """What has to be kept beside model and optimizer to go on later."""
        engine = self.collector.engine
        worlds = np.frombuffer(engine.worlds.tobytes(), dtype=np.uint8)
        # A world does not tell all: what its agent sees first can be from before it was given something to carry.
        kept = {"worlds": torch.from_numpy(worlds.copy()), "images": torch.from_numpy(engine.images.copy())}
        return {**self.collector.tensors(), **kept, "totals": self.totals}

    def state(self) -> dict[str, Any]:
        """The rest of it, in the types of JSON."""
        return {"acting": self.collector.state(), "mixing": self.generator.bit_generator.state}

    def load(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Goes on where another one was, with the weights that the model has now."""
        engine = self.collector.engine
        for index, world in enumerate(tensors["worlds"].numpy().reshape(engine.num_worlds, -1)):
            engine.restore(index, world.tobytes())
        engine.images[:] = tensors["images"].numpy()
        self.collector.load(tensors, state["acting"])
        self.generator.bit_generator.state = state["mixing"]
        self.totals.copy_(tensors["totals"])
        self.working.refresh()


# ------------------------------------------------------------ runs


@dataclass(frozen=True)
class PPOOptions(PPOSettings, TrainingOptions):
    """Learn from reward (appendix B)."""

    frames: int = 50_000_000
    """At most so many."""
    statistics: Statistics | None = None
    """What batch norm averages over when learning: the whole chunk, or one time step (code)."""
    validate_every: int = 50
    """Updates between validations, which play the same missions each time; 0: none."""
    window: int | None = None
    """Rows over which success is smoothed to find the sample efficiency: 100, or 10 for GoToRedBallGrey."""
    stop_when_known: bool = True
    """Stop as soon as both sample efficiencies are known."""

    def __post_init__(self) -> None:
        TrainingOptions.__post_init__(self)
        PPOSettings.__post_init__(self)
        check_counts(self, "frames", "window")
        if self.validate_every < 0:
            raise ValueError(f"validate_every must be from 0 on, not {self.validate_every}")
        if self.first_seed + self.worlds > RESERVED:
            raise ValueError(f"seed {self.seed} would play missions that are reserved for validation (from 10^9)")

    @property
    def first_seed(self) -> int:
        """The seed of the first world, as in the authors' code; the others' follow."""
        return 100 * self.seed

    @property
    def may_differ(self) -> tuple[str, ...]:
        """What may be otherwise when a run is resumed."""
        return (*super().may_differ, "frames", "stop_when_known", "validate_every")

    @property
    def total(self) -> float:
        """How many frames there are to be played."""
        return self.frames

    @property
    def unit(self) -> Literal["demos", "frames"]:
        """What that is counted in."""
        return "frames"


def train(options: PPOOptions, *, stop: Stop = lambda: False) -> Session:
    """Trains until the frames are over or the sample efficiency is known; the run's folder has everything."""
    return finish(training(options, stop=stop))


def training(
    options: PPOOptions, *, panel: tuple[Panel, int] | None = None, stop: Stop = lambda: False
) -> Turns[Session]:
    """As `train`, in turns with others.

    Args:
        options: What was asked for.
        panel: Where to show it, and as which line, if several runs go side by side.
        stop: Asked after each update whether to stop early; the run can be resumed.
    """
    with Session(options, "ppo", panel) as session:
        engine = Engine(options.level_names, options.worlds, rules=options.rules)
        engine.reset(options.first_seed)
        statistics = options.statistics or ("step" if options.protocol == "code" else "chunk")
        common = {"seed": options.seed, "precision": session.precision, "fast": options.fast}
        ppo = PPO(session.model, engine, options, statistics=statistics, **common)
        window = options.window or usual_window(options.level_names)
        yield from learning(options, session, ppo, SampleEfficiency(window, options.worlds), stop)
    return session


def learning(options: PPOOptions, session: Session, ppo: PPO, efficiency: SampleEfficiency, stop: Stop) -> Turns[None]:
    """Update after update: play, learn, count; after every ten, keep a row."""
    update = 0
    if (kept := session.restore(ppo.optimizer)) is not None:
        tensors, state = kept
        ppo.load(tensors, state["ppo"])
        efficiency.load(state["efficiency"])
        update = state["update"]
        session.begin_at(update * options.frames_an_update)

    def is_over() -> bool:
        return update * options.frames_an_update >= options.frames or (options.stop_when_known and efficiency.known)

    started, first_update = time.perf_counter(), update
    ending = update % UPDATES_A_ROW == 0 and is_over()
    while not ending:
        rollout = yield from ppo.updating()
        update += 1
        frames = update * options.frames_an_update
        efficiency.add(rollout.returns, rollout.lengths)
        session.advance(frames)

        best = over = False
        if update % UPDATES_A_ROW == 0:
            yield from waiting(ppo.device)
            measures, seconds = ppo.measures(), time.perf_counter() - started
            row = {"update": update, "frames": frames, "episodes": efficiency.episodes, **efficiency.close_row()}
            row |= measures | {"seconds": seconds}
            row |= {"frames_per_second": (update - first_update) * options.frames_an_update / seconds}
            row |= {"sample_efficiency": {"centred": efficiency.centered, "trailing": efficiency.trailing}}
            if options.validate_every and update % options.validate_every < UPDATES_A_ROW:
                results = session.validate(fresh=False)
                success, reward = (
                    float(np.mean([getattr(result, name) for result in results.values()]))
                    for name in ("success_rate", "mean_reward")
                )
                best = session.is_best(success, reward)
                row |= {"validation": success, "levels": {level: result.to_dict() for level, result in results.items()}}
            session.show(frames, row)
            started, first_update, over = time.perf_counter(), update, is_over()
        ending = over or session.must_end(stop)
        if best or ending or session.time_to_save():
            state = {"update": update, "ppo": ppo.state(), "efficiency": efficiency.state()}
            session.save(update, ppo.optimizer, ppo.tensors(), state, best=best)
