"""Replay: chunks are what an engine shows when the demonstrations are played by hand, whoever made them."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from babyai.demos.collect import collect
from babyai.demos.packed import Demo
from babyai.demos.record import Recorder
from babyai.demos.replay import Chunk, Replay
from babyai.demos.sources import ExpertSource, FileSource, Mixture
from babyai.demos.store import DemoFile
from babyai.demos.verify import play_demo
from babyai.engine import Engine
from babyai.render.blit import rgb_views
from babyai.world.language import words_of
from tests.scale import scaled

STEPS, LANES = 9, 5


def by_hand(demo: Demo, rules="paper", view_size=7):
    """For each step of a demonstration: image, direction, action, whether it is the first, and the mission."""
    states = itertools.islice(play_demo(demo, rules, view_size), len(demo))
    for step, (engine, action) in enumerate(zip(states, demo.actions.tolist(), strict=True)):
        yield engine.images[0].copy(), int(engine.directions[0]), action, step == 0, words_of(engine.missions[0])


def columns_of(chunks: list[Chunk], lane: int):
    """The same of one lane of consecutive chunks."""
    for chunk in chunks:
        for t in range(chunk.images.shape[0]):
            mission = words_of(chunk.missions[chunk.mission_index[t, lane]])
            yield (
                *(chunk.images[t, lane], int(chunk.directions[t, lane]), int(chunk.actions[t, lane])),
                *(bool(chunk.first[t, lane]), mission),
            )


def fill(replay: Replay, count: int) -> list[Chunk]:
    chunks = [Chunk.empty(replay.steps, replay.lanes, replay.engine.view_size, replay.kind) for _ in range(count)]
    for chunk in chunks:
        replay.fill(chunk)
    return chunks


def alike(one: tuple, other: tuple) -> bool:
    return np.array_equal(one[0], other[0]) and one[1:] == other[1:]


def same_chunks(ones: list[Chunk], others: list[Chunk]) -> bool:
    names = ("images", "directions", "actions", "first", "mission_index", "missions")
    return len(ones) == len(others) and all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for one, other in zip(ones, others, strict=True)
        for name in names
    )


class Noting:
    """A source that remembers what it handed out."""

    def __init__(self, source) -> None:
        self.source, self.levels, self.rules = source, source.levels, source.rules
        self.rows: list[int] = []

    def take(self, count: int):
        batch = self.source.take(count)
        self.rows += batch.rows.tolist()
        return batch

    def __getattr__(self, name: str):
        return getattr(self.source, name)


# ---------------------------------------------------------------- chunks


@pytest.mark.parametrize("view_size", [7, 5])
def test_lanes_are_demonstrations_end_to_end(small_file: Path, view_size: int) -> None:
    source = Noting(FileSource(small_file, seed=3))
    replay = Replay(source, steps=STEPS, lanes=LANES, view_size=view_size)
    chunks = fill(replay, scaled(60, 4))
    with DemoFile(small_file) as file:
        played = [file[row] for row in source.rows]
    names = {(demo.level, demo.seed): demo for demo in played}
    for lane in range(LANES):
        # Whose turn it was is in the chunks; that they came in the order of the source is checked below.
        begun = [
            names[source.levels[chunk.levels[number]].name, int(chunk.seeds[number])]
            for chunk in chunks
            for t, number in enumerate(chunk.mission_index[:, lane])
            if chunk.first[t, lane]
        ]
        expected = itertools.chain.from_iterable(by_hand(demo, view_size=view_size) for demo in begun)
        for shown, wanted in zip(columns_of(chunks, lane), expected, strict=False):
            assert alike(shown, wanted)
    assert sum(int(chunk.first.sum()) for chunk in chunks) == len(played)
    begun = Counter((chunk.seeds[n], chunk.levels[n]) for chunk in chunks for n in chunk.mission_index[chunk.first])
    assert begun == Counter((demo.seed, file.levels.index(demo.level)) for demo in played)


def test_missions_are_listed_once(small_file: Path) -> None:
    for chunk in fill(Replay(FileSource(small_file), steps=STEPS, lanes=LANES), 20):
        assert chunk.mission_index[0].tolist() == list(range(LANES))
        assert sorted(set(chunk.mission_index.ravel().tolist())) == list(range(chunk.count))
        # After the lanes' own, one for each episode that begins later.
        assert chunk.count == LANES + int(chunk.first[1:].sum())


@pytest.mark.parametrize("kind", ["symbolic", "rgb"])
def test_threads_and_background_make_no_difference(small_file: Path, kind: str) -> None:
    plain = fill(Replay(FileSource(small_file), steps=STEPS, lanes=LANES, kind=kind), 8)
    with Replay(FileSource(small_file), steps=STEPS, lanes=LANES, kind=kind, threads=2) as replay:
        for expected in plain:
            assert same_chunks([next(replay)], [expected])
    if kind == "rgb":
        symbolic = fill(Replay(FileSource(small_file), steps=STEPS, lanes=LANES), 8)
        for pixels, symbols in zip(plain, symbolic, strict=True):
            assert np.array_equal(pixels.images.reshape(-1, 56, 56, 3), rgb_views(symbols.images.reshape(-1, 7, 7, 3)))


def test_arrays_can_be_ones_own(small_file: Path) -> None:
    mine = [Chunk.empty(STEPS, LANES) for _ in range(2)]
    with Replay(FileSource(small_file), steps=STEPS, lanes=LANES, ahead=1, buffers=mine) as replay:
        given = [next(replay) for _ in range(4)]
    assert all(any(chunk is own for own in mine) for chunk in given)
    with pytest.raises(ValueError, match="need at least 3 buffers, not 2"):
        Replay(FileSource(small_file), steps=STEPS, lanes=LANES, ahead=2, buffers=mine)


def test_carrying_begins_as_the_rules_say(tmp_path: Path) -> None:
    """Minigrid hands the object over after the first observation; a replay shows the same."""
    for rules in ("paper", "minigrid"):
        path = tmp_path / f"{rules}.parquet"
        engine = Engine("PutNextS5N2Carrying", rules=rules)
        engine.reset([3])
        recorder = Recorder("PutNextS5N2Carrying", 3, rules)
        for action in [0, 1] * 200:
            if not recorder.done:
                recorder.act(action)
        recorder.save(path)
        chunk = fill(Replay(FileSource(path), steps=6, lanes=1), 1)[0]
        wanted = itertools.islice(by_hand(recorder.demo(), rules), 6)
        assert all(alike(shown, hand) for shown, hand in zip(columns_of([chunk], 0), wanted, strict=True))
        assert np.array_equal(chunk.images[0, 0], engine.images[0])


def test_errors_reach_whoever_asks(tmp_path: Path, small_file: Path) -> None:
    source = FileSource(small_file)
    source.demos = replace(source.demos, actions=np.zeros_like(source.demos.actions))
    with Replay(source, steps=40, lanes=LANES) as replay:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="does not end where its episode does; run `babyai demos verify`"):
                list(itertools.islice(replay, 50))
    for settings, complaint in (({"steps": 0}, "must be from 1 on"), ({"kind": "smell"}, "unknown kind 'smell'")):
        with pytest.raises(ValueError, match=complaint):
            Replay(source, **({"steps": 3, "lanes": 2} | settings))


# ---------------------------------------------------------------- files


def rows_of(source: FileSource, count: int) -> list[int]:
    return [row for _ in range(count // 7) for row in source.take(7).rows.tolist()]


def test_every_pass_goes_through_the_file_once_in_an_order_of_its_own(small_file: Path) -> None:
    size = scaled(35, 7)
    source = FileSource(small_file, seed=1, demos=size)
    passes = np.array(rows_of(source, 4 * size)).reshape(4, size)
    assert all(sorted(one) == list(range(size)) for one in passes.tolist()) and source.passes == 4
    assert len({tuple(one) for one in passes.tolist()}) == 4
    assert rows_of(FileSource(small_file, seed=1, demos=size), 4 * size) == passes.ravel().tolist()
    assert rows_of(FileSource(small_file, seed=2, demos=size), 4 * size) != passes.ravel().tolist()
    assert rows_of(FileSource(small_file, demos=size, shuffle=False), 2 * size) == [*range(size)] * 2
    with pytest.raises(ValueError, match="cannot be taken from it"):
        FileSource(small_file, demos=10**6)


def test_levels_come_up_by_weight(small_file: Path) -> None:
    source = FileSource(small_file, weights={"BossLevel": 3.0, "GoToLocal": 1.0})
    levels = np.concatenate([source.take(50).levels for _ in range(80)])
    share = (levels == source.demos.names.index("BossLevel")).mean()
    assert 0.7 < share < 0.8
    for weights, complaint in (
        ({"Open": 1.0}, "weight for level 'Open', but no demonstration"),
        ({"BossLevel": -1.0}, "weights must be"),
        ({"BossLevel": 0.0}, "weights must be"),
    ):
        with pytest.raises(ValueError, match=complaint):
            FileSource(small_file, weights=weights)


def test_a_mixture_does_not_depend_on_how_it_is_taken() -> None:
    one, other = Mixture([1, 2, 3], 5), Mixture([1, 2, 3], 5)
    pieces = np.concatenate([one.take(k) for k in (0, 1, 700, 5, 2000)])
    assert np.array_equal(pieces, other.take(2706)) and one.position == other.position
    other.position = 701
    assert np.array_equal(other.take(5), pieces[701:706])


# ---------------------------------------------------------------- the expert without a file


@pytest.mark.parametrize("threads", [1, 2])
def test_fresh_demonstrations_are_those_that_collecting_makes(tmp_path: Path, threads: int) -> None:
    count = scaled(64, 8)
    with DemoFile(collect("GoToLocal", count, 40, tmp_path / "x.parquet").path) as file:
        demos = file.read()
    source = ExpertSource("GoToLocal", first_seed=40, block=16, threads=threads)
    batches = [source.take(k) for k in (3, count - 4, 1)]
    assert np.concatenate([batch.seeds for batch in batches]).tolist() == demos.seeds.tolist()
    taken = [b.actions[s : s + n].tolist() for b in batches for s, n in zip(b.starts, b.lengths, strict=True)]
    assert taken == [demo.actions.tolist() for demo in demos]
    source.close()


def test_fresh_demonstrations_of_several_levels() -> None:
    source = ExpertSource({"GoToLocal": 1.0, "Open": 3.0}, block=32, seed=4)
    batch = source.take(scaled(2000, 64))
    for code in (0, 1):
        seeds = batch.seeds[batch.levels == code]
        assert seeds.tolist() == list(range(len(seeds)))
    assert 0.6 < (batch.levels == 1).mean() < 0.9
    source.close()


def test_reserved_seeds_are_never_reached() -> None:
    source = ExpertSource("GoToLocal", first_seed=10**9 - 3, block=8)
    assert source.take(8).seeds.tolist() == [10**9 - 3, 10**9 - 2, 10**9 - 1, 10**9 - 3, 10**9 - 2, 10**9 - 1] + [
        10**9 - 3, 10**9 - 2
    ]  # fmt: skip
    source.close()


# ---------------------------------------------------------------- going on


def sources(path: Path):
    yield lambda: FileSource(path, seed=2)
    yield lambda: FileSource(path, seed=2, weights={"BossLevel": 1.0, "GoToLocal": 2.0})
    yield lambda: ExpertSource({"GoToLocal": 2.0, "Open": 1.0}, block=16, seed=2)


def test_a_position_leads_back_to_the_same_chunks(small_file: Path) -> None:
    for make in sources(small_file):
        with Replay(make(), steps=STEPS, lanes=LANES) as replay:
            for _ in range(7):
                next(replay)
            state = json.loads(json.dumps(replay.state_dict()))
            expected = []
            for _ in range(6):
                chunk = next(replay)
                expected.append(Chunk(**{name: np.copy(value) for name, value in vars(chunk).items() if name in ARRAYS},
                                      count=chunk.count))  # fmt: skip
        with Replay(make(), steps=STEPS, lanes=LANES) as other:
            next(other)
            other.load_state_dict(state)
            assert other.state_dict() == state
            for chunk in expected:
                assert same_chunks([next(other)], [chunk])


ARRAYS = ("images", "directions", "actions", "first", "mission_index", "mission_table", "levels", "seeds")


def test_positions_of_others_are_refused(tmp_path: Path, small_file: Path) -> None:
    replay = Replay(FileSource(small_file), steps=STEPS, lanes=LANES)
    fill(replay, 3)
    state = replay.state_dict()
    with pytest.raises(ValueError, match="is one of 5 lanes, and this replay has 4"):
        Replay(FileSource(small_file), steps=STEPS, lanes=4).load_state_dict(state)
    with pytest.raises(ValueError, match="belongs to another source"):
        Replay(ExpertSource("GoToLocal"), steps=STEPS, lanes=LANES).load_state_dict(state)
    other = collect("GoToLocal", scaled(600, 12), 5, tmp_path / "x.parquet").path
    with pytest.raises(ValueError, match="belongs to another file"):
        Replay(FileSource(other), steps=STEPS, lanes=LANES).load_state_dict(state)
