"""`benchmarks.authors_batches`: both passes equal a plain unroll, one time step after the other."""

from pathlib import Path

import numpy as np
import pytest
import torch

from babyai.agents.config import AgentConfig
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.agents.policy import unroll
from babyai.engine import Engine
from babyai.studies.store import ROWS, collect_rows, read_rows
from benchmarks import authors_batches
from benchmarks.authors_batches import Episodes, first_pass, group_batch_norm, iter_order, make_batch, replay

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def episodes() -> Episodes:
    return replay("GoToRedBall", 24)


def make_model(architecture: str = "original") -> FilmLSTM:
    """In training mode; the same weights at each call."""
    torch.manual_seed(0)
    return FilmLSTM(AgentConfig.of(architecture, "small")).train()


def test_demonstrations_are_taken_longest_first(episodes: Episodes) -> None:
    taken = episodes.take([3, 17, 5])
    assert taken.lengths.tolist() == sorted(episodes.lengths[[3, 17, 5]], reverse=True)
    assert len(taken.labels) == len(taken.images) == taken.lengths.sum() == taken.offsets[-1]
    begins = episodes.offsets
    longest = max((3, 17, 5), key=lambda row: episodes.lengths[row])
    frames = slice(begins[longest], begins[longest + 1])
    assert torch.equal(taken.labels[: taken.lengths[0]], episodes.labels[frames])
    assert torch.equal(taken.images[: taken.lengths[0]], episodes.images[frames])
    assert torch.equal(taken.missions[0], episodes.missions[longest])
    engine = Engine("GoToRedBall", 24)
    engine.reset(np.arange(24))
    assert np.array_equal(episodes.images[begins[:-1]], engine.images)


def test_every_demonstration_comes_before_any_comes_again() -> None:
    order = iter_order(10, seed=1)
    passes = [[next(order) for _ in range(10)] for _ in range(2)]
    assert [sorted(each) for each in passes] == [list(range(10))] * 2 and passes[0] != passes[1]


@pytest.mark.parametrize("architecture", ["original", "bow_endpool_res"])
def test_first_pass_plays_all_demonstrations_step_by_step(episodes: Episodes, architecture: str) -> None:
    taken = episodes.take(range(24))
    model, plain = make_model(architecture), make_model(architecture)
    hidden, cell = first_pass(model, taken)
    state = plain.initial_state(24)
    with torch.no_grad():
        for step in range(taken.lengths.max()):
            # They are sorted by length, so those that are still going on come first.
            rows = np.flatnonzero(step < taken.lengths)
            frames = torch.from_numpy(taken.offsets[rows] + step)
            state = tuple(part[: len(rows)] for part in state)
            torch.testing.assert_close((hidden[frames], cell[frames]), state, rtol=0, atol=1e-5)
            zeros = torch.zeros(len(rows), dtype=torch.int64)
            names = ("image", "mission", "direction", "last_action")
            observation = dict(zip(names, (taken.images[frames], taken.missions[rows], zeros, zeros), strict=True))
            state = plain(observation, state)[-1]
    # The running averages have seen the same groups of frames, in the same order.
    torch.testing.assert_close(dict(model.named_buffers()), dict(plain.named_buffers()), rtol=1e-4, atol=1e-5)


def test_second_pass_is_a_plain_unroll_of_chunks(episodes: Episodes) -> None:
    taken = episodes.take(range(24))
    model = make_model()
    batch, state, sizes = make_batch(model, taken)
    chunks = len(taken.labels) // 20
    assert 0 < chunks * 20 < len(taken.labels) and batch.labels.shape == (20, chunks) and sizes == [chunks] * 20
    assert torch.equal(batch.labels.T.flatten(), taken.labels[: chunks * 20])
    assert int(batch.starts.sum()) == int((taken.offsets[:-1] < chunks * 20).sum())
    plain = make_model()
    plain.load_state_dict(model.state_dict())
    with group_batch_norm(sizes):
        grouped = unroll(model, batch, state)
    expected = unroll(plain, batch, state, step_by_step=True)
    torch.testing.assert_close(grouped.logits, expected.logits, rtol=0, atol=1e-4)
    torch.testing.assert_close(dict(model.named_buffers()), dict(plain.named_buffers()), rtol=1e-4, atol=1e-5)
    whole = unroll(plain, batch, state)
    assert (grouped.logits - whole.logits).abs().max() > 1e-2


@pytest.mark.long
def test_training_learns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny = {"BATCH_SIZE": 32, "EPOCH_LENGTH": 640, "LEARNING_RATE": 1e-3, "VALIDATION_EPISODES": 20}
    for name, value in tiny.items():
        monkeypatch.setattr(authors_batches, name, value)
    words = ["--level", "GoToObj", "--demos", "100", "--architecture", "bow_endpool_res", "--epochs", "4"]
    monkeypatch.setattr("sys.argv", ["authors_batches", *words, "--state", str(tmp_path / "state")])
    authors_batches.main()
    assert collect_rows([tmp_path / "state"], tmp_path / "results") == (1, [])
    (row,) = read_rows(tmp_path / "results").rows
    assert row["cell"] == "imitation/GoToObj/100/bow_endpool_res/authors-batches"
    assert row["complete"] and row["figures"]["validations"] == 4 and row["origin"]["commit"]
    assert {len(column) for column in row["curve"].values()} == {4}
    first, *_, last = row["curve"]["loss"]
    assert last < first - 0.3 and all(0 <= success <= 1 for success in row["curve"]["success"])


def test_results_are_not_overwritten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ROWS).write_text("a row\n")
    monkeypatch.setattr("sys.argv", ["authors_batches", "--state", str(tmp_path)])
    with pytest.raises(SystemExit):
        authors_batches.main()
    assert "already holds results" in capsys.readouterr().err
    assert (tmp_path / ROWS).read_text() == "a row\n"
