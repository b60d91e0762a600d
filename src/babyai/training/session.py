"""What every training does around its learning: begin or resume, validate, keep the best, show, save, stop."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from babyai.agents.checkpoint import fit_tensors, load_config, load_tensors, load_weights, write_model
from babyai.agents.config import AnyConfig
from babyai.agents.custom import build_model
from babyai.agents.device import Precision, find_device, find_precision, place_model
from babyai.agents.tensors import Dtype
from babyai.evaluation.evaluate import VALIDATION_SEED, Evaluation, evaluate
from babyai.evaluation.players import AgentPlayer
from babyai.training.interrupts import asking_to_stop
from babyai.training.options import TrainingOptions
from babyai.training.panel import Panel
from babyai.training.run import Kind, Run
from babyai.training.state import load_optimizer_tensors, optimizer_tensors

Stop = Callable[[], bool]
# The name under which a checkpoint has the state of torch's own generator.
GENERATOR = "generator"

logger = logging.getLogger(__name__)


class Session:
    """A run under way: its folder, its model on its device, and the best it has been.

    Args:
        options: What was asked for.
        kind: What kind of training it is.
        panel: Where to show it, and as which of several runs side by side; None: a panel of its own.
    """

    def __init__(self, options: TrainingOptions, kind: Kind, panel: tuple[Panel, int] | None = None) -> None:
        self.options, self.agent = options, options.agent_config()
        self.device = find_device(options.device)
        self.precision: Precision = find_precision(
            None if options.precision == "auto" else options.precision, self.device
        )
        # Decides the first weights, and what layers that draw at random will draw.
        torch.manual_seed(options.seed)
        model = build_model(self.agent)
        if options.init_from is not None and not options.resume:
            begin_with(model, self.agent, options.init_from)
        self.model: nn.Module = place_model(model, self.device)
        self.best, self.validations, self.since_best = (-1.0, 0.0), 0, 0
        self._player = AgentPlayer(self.model, precision=self.precision)
        self._stack, self._begun, self._saved = ExitStack(), time.monotonic(), time.monotonic()
        folder = options.run_folder(kind)
        config, flags = asdict(options), {"tensorboard": options.tensorboard}
        self.run = self._stack.enter_context(
            Run.resume(folder, config, kind=kind, may_differ=options.may_differ, **flags)
            if options.resume
            else Run.create(folder, config, kind, **flags)
        )
        # A run that is resumed may have been killed before its first checkpoint.
        if options.init_from is not None and options.resume and self.run.latest() is None:
            begin_with(self.model, self.agent, options.init_from)
        # Whoever shows several runs side by side stops all of them.
        self._asked = None if panel else self._stack.enter_context(asking_to_stop())
        self._panel, self._line = panel or (
            Panel(options.total, options.unit, f"{kind} {options.levels}", quiet=options.quiet),
            0,
        )
        if panel is None:
            self._stack.enter_context(self._panel)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.run.folder

    def restore(self, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Brings model and optimizer to where the run was; gives the rest that was kept, or None in a new run."""
        kept = self.run.latest()
        if kept is None:
            return None
        folder, tensors, state = kept
        fit_tensors(self.model, load_tensors(folder, dtype="float32"), f"the checkpoint at {folder}")
        load_optimizer_tensors(optimizer, self.model, tensors)
        torch.set_rng_state(tensors[GENERATOR])
        *best, self.validations, self.since_best = state["session"]
        self.best = best[0], best[1]
        return tensors, state

    def validate(self, *, fresh: bool) -> dict[str, Evaluation]:
        """Plays the validation missions of each level, new ones each time if `fresh`."""
        missions = self.options.validation_missions
        first = VALIDATION_SEED + (self.validations * missions if fresh else 0)
        results = {
            level: evaluate(self._player, level, missions=missions, first_seed=first, rules=self.options.rules)
            for level in self.options.level_names
        }
        self.validations += 1
        return results

    def is_best(self, success: float, reward: float = 0.0) -> bool:
        """Whether the agent has never been better, the reward deciding between equals; counts validations since."""
        better = (success, reward) > self.best
        self.best, self.since_best = max((success, reward), self.best), 0 if better else self.since_best + 1
        return better

    @property
    def best_success(self) -> float:
        """The best success in validation; negative before the first one."""
        return self.best[0]

    def must_end(self, stop: Stop) -> bool:
        """Whether Ctrl-C was pressed, the time is over, or `stop` says so."""
        limit = self.options.max_minutes
        late = limit is not None and time.monotonic() - self._begun > 60 * limit
        if stop() or (self._asked is not None and self._asked.is_set()):
            self.run.interrupted = True
        return late or self.run.interrupted

    def time_to_save(self) -> bool:
        """Whether the last checkpoint is old enough."""
        return time.monotonic() - self._saved >= self.options.save_seconds

    def collecting(self, done: int, total: int) -> None:
        """Shows how many demonstrations have been collected."""
        self._panel.note(f"collecting, {done:,} of {total:,} demonstrations" if done < total else "", self._line)

    def begin_at(self, done: float) -> None:
        """Shows that so much had been done before it was resumed."""
        self._panel.begin_at(done, self._line)

    def advance(self, done: float) -> None:
        """Shows how far it is."""
        self._panel.advance(min(done, self.options.total), self._line)

    def show(self, done: float, row: dict[str, Any]) -> None:
        """Keeps a row, and shows it."""
        self.run.log(row)
        self._panel.update(min(done, self.options.total), row, run=self._line)

    def save(
        self,
        number: int,
        optimizer: torch.optim.Optimizer,
        tensors: dict[str, Tensor],
        state: dict[str, Any],
        *,
        best: bool = False,
    ) -> None:
        """Writes a checkpoint; `best` says that the agent has never been better."""
        self.run.save(
            number,
            partial(self._write_model, "float32"),
            optimizer_tensors(optimizer, self.model) | tensors | {GENERATOR: torch.get_rng_state()},
            state | {"session": [*self.best, self.validations, self.since_best]},
            best=best,
            write_best=partial(self._write_model, self.options.save_dtype),
        )
        self._saved = time.monotonic()

    def _write_model(self, dtype: Dtype, folder: Path) -> None:
        limit = self.options.max_part_bytes
        write_model(folder, self.model, self.agent, dtype=dtype, max_part_bytes=limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


def begin_with(model: nn.Module, agent: AnyConfig, folder: str) -> None:
    """Gives a model the weights of an agent or a run; says so if they were learned by an agent that works otherwise."""
    load_weights(model, folder)
    there, here = asdict(load_config(folder)), asdict(agent)
    differences = [
        f"{name} is {there.get(name)!r} there and {here.get(name)!r} here"
        for name in sorted(there | here)
        if there.get(name) != here.get(name)
    ]
    if differences:
        logger.warning("the weights of %s fit, but are of another agent: %s", folder, "; ".join(differences))
