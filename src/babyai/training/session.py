"""What every training does around its learning: begin or resume, validate, keep the best, show, save, stop."""

import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from babyai.agents.checkpoint import fit_tensors, load_tensors, load_weights, write_model
from babyai.agents.custom import build_model
from babyai.agents.device import Precision, find_device, find_precision, place_model
from babyai.agents.tensors import Dtype
from babyai.evaluation.evaluate import VALIDATION_SEED, Evaluation, evaluate
from babyai.evaluation.players import AgentPlayer
from babyai.training.options import TrainingOptions
from babyai.training.panel import Panel
from babyai.training.run import Kind, Run
from babyai.training.state import load_optimizer_tensors, optimizer_tensors

Stop = Callable[[], bool]


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
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(options.seed)
            model = build_model(self.agent)
        if options.init_from is not None and not options.resume:
            load_weights(model, options.init_from)
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
            load_weights(self.model, options.init_from)
        # Whoever shows several runs side by side stops all of them.
        self._stack.enter_context(nullcontext() if panel else self.run.catching_interrupts())
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
        if stop():
            self.run.interrupted = True
        return late or self.run.interrupted

    def time_to_save(self) -> bool:
        """Whether the last checkpoint is old enough."""
        return time.monotonic() - self._saved >= self.options.save_seconds

    def collecting(self, done: int, total: int) -> None:
        """Shows how many demonstrations have been collected."""
        self._panel.note(f"collecting, {done:,} of {total:,} demonstrations" if done < total else "", self._line)

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
            optimizer_tensors(optimizer, self.model) | tensors,
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
