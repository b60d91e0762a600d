"""A digest of every level's behavior, used to detect unintended changes.

`python -m tests.level_digests` updates `golden/level_digests.json`. It fails if the behavior of a level changed but
its `Level.version` did not: demos, checkpoints and results refer to that version, so increase it first. Use `--force`
only if this file itself changed.
"""

import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from babyai import LEVELS, Engine
from babyai.levels.catalog import Rules, find_level
from babyai.world.codes import TRIPLES
from babyai.world.language import detokenize
from babyai.world.state import position_of
from tests.reference import encode_grid, generator_state

FILE = Path(__file__).parent / "golden" / "level_digests.json"
RULES = get_args(Rules)
SEEDS = 20
STEPS = 100
ACTION_PROBS = (0.12, 0.12, 0.4, 0.12, 0.1, 0.12, 0.02)
ADVICE = "increase `version` in its line of the catalog, then run `python -m tests.level_digests`"


@dataclass(frozen=True)
class Behavior:
    """The behavior of a level under one rule set."""

    version: int
    digest: str


def _state(engine: Engine, index: int) -> str:
    """Returns the state of one world in a form that does not depend on the layout of the record."""
    world = engine.worlds[index]
    carried = TRIPLES[int(world.carrying)].tolist() if world.carrying else None
    return repr(
        (
            *(hashlib.sha256(encode_grid(world).tobytes()).hexdigest(), position_of(world.agent), int(world.agent_dir)),
            *(carried, int(world.step_count), int(world.max_steps), detokenize(engine.missions[index])),
            generator_state(world),
        )
    )


def behavior_of(name: str, rules: Rules) -> Behavior:
    """Plays random actions in some worlds of a level, over several episodes, and hashes everything observable."""
    engine = Engine(name, SEEDS, rules=rules)
    engine.reset(0)
    digest = hashlib.sha256()
    actions = np.random.default_rng(0).choice(7, size=(STEPS, SEEDS), p=ACTION_PROBS)
    digest.update("".join(_state(engine, i) for i in range(SEEDS)).encode())
    digest.update(engine.images.tobytes())
    for step_actions in actions:
        engine.step(step_actions)
        for array in (engine.images, engine.directions, engine.rewards, engine.terminated, engine.truncated):
            digest.update(array.tobytes())
        # New episodes are hashed one by one, so that the digest does not depend on the batching.
        for i in np.flatnonzero(engine.reset_done()):
            digest.update(_state(engine, i).encode() + engine.images[i].tobytes())
    digest.update("".join(_state(engine, i) for i in range(SEEDS)).encode())
    return Behavior(find_level(name, rules).version, digest.hexdigest()[:16])


def read_digests() -> dict[str, dict[str, Behavior]]:
    """Returns the committed behaviors, by level and rule set."""
    if not FILE.exists():
        return {}
    stored = json.loads(FILE.read_text())
    return {name: {rules: Behavior(**each) for rules, each in both.items()} for name, both in stored.items()}


def explain_change(name: str, rules: str, now: Behavior, before: Behavior | None) -> str | None:
    """Returns how the behavior differs from the committed one and what to do about it; None if it does not."""
    if before is None:
        return f"{name} ({rules} rules) is new; run `python -m tests.level_digests`"
    if now.digest != before.digest and now.version == before.version:
        return f"{name} ({rules} rules) no longer behaves like version {before.version}; if this is intended, {ADVICE}"
    if now != before:
        versions = f"is version {now.version}, not {before.version}"
        return f"{name} ({rules} rules) {versions}; run `python -m tests.level_digests`"
    return None


def main(arguments: list[str]) -> int:
    """Writes the file unless the behavior of a level changed without a new version."""
    before = read_digests()
    now = {name: {rules: behavior_of(name, rules) for rules in RULES} for name in sorted(LEVELS)}
    pairs = [(name, rules, now[name][rules], before.get(name, {}).get(rules)) for name in now for rules in RULES]
    changed = [
        pair for pair in pairs if pair[3] and pair[3].digest != pair[2].digest and pair[3].version == pair[2].version
    ]
    if changed and "--force" not in arguments:
        print("\n".join(explain_change(*pair) or "" for pair in changed))
        return 1
    text = {name: {rules: asdict(each) for rules, each in both.items()} for name, both in now.items()}
    FILE.write_text(json.dumps(text, indent=1) + "\n")
    print(f"wrote {len(text)} levels to {FILE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
