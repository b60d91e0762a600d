"""Progress of a run: lines without a terminal, a panel in one, nothing when quiet."""

import io
import math
import os

import pytest
from rich.console import Console

from babyai.console import hidden_control_keys
from babyai.training import progress
from babyai.training.progress import Panel, describe, describe_time, draw_bars


def make_console(terminal: bool, width: int = 120) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=terminal,
        width=width,
        height=40,
        soft_wrap=True,
        legacy_windows=False,
        _environ={},
    )


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class Clock:
    """Time that only passes when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


ROW = {"epoch": 12, "demos": 307_200, "success": 0.934, "loss": 0.2134, "gradient": 3.0, "frames_per_second": 52_310.4}


def test_a_line_has_the_metrics_that_matter(clock: Clock) -> None:
    console = make_console(False)
    with Panel(614_400, "demos", "imitation [GoToLocal]", console=console) as panel:
        clock.now += 180
        panel.update(307_200, ROW)
    assert text_of(console).splitlines() == [
        "imitation [GoToLocal]",
        "epoch 12  demos 307,200  success 93.4 %  loss 0.213  52,310 frames/s  3 min left",
    ]


def test_lines_are_limited_and_the_last_is_among_them(clock: Clock) -> None:
    console = make_console(False)
    with Panel(1000, "frames", "PPO", console=console) as panel:
        for number in range(1, 51):
            clock.now += 0.125
            panel.update(number, {"update": number})
    numbers = [int(line.split()[1]) for line in text_of(console).splitlines()[1:]]
    assert numbers == [1, 17, 33, 49, 50]


def test_the_end_is_shown_at_once(clock: Clock) -> None:
    console = make_console(False)
    with Panel(2, "frames", "PPO", console=console) as panel:
        panel.update(1, {"update": 1})
        panel.update(2, {"update": 2})
        assert "update 2" in text_of(console)
    assert text_of(console).count("update 2") == 1


def test_time_left_counts_from_where_a_run_was_resumed(clock: Clock) -> None:
    console = make_console(False)
    with Panel(1000, "demos", "t", console=console) as panel:
        panel.begin_at(900)
        clock.now += 10
        panel.update(910, {"epoch": 1})
    assert text_of(console).endswith("epoch 1  90 s left\n")


def test_time_left_follows_the_newest_speed(clock: Clock) -> None:
    console = make_console(False)
    with Panel(1000, "demos", "t", console=console) as panel:
        for done in range(1, 501):
            clock.now += 10 if done < 300 else 2
            panel.update(done, {"epoch": done})
    # 500 at 2 s each, though the average is 6.8 s.
    assert text_of(console).endswith("epoch 500  17 min left\n")


def test_time_passes_between_rows(clock: Clock) -> None:
    console = make_console(True)
    with Panel(100, "demos", "t", console=console) as panel:
        clock.now += 180
        panel.update(50, {"epoch": 1})
        clock.now += 60
    assert "2 min left" in text_of(console).rpartition("╭")[2]


@pytest.mark.parametrize(("total", "done"), [(math.inf, 5), (10, 0)])
def test_unknown_remaining_time_is_not_shown(total: float, done: float) -> None:
    for terminal in (False, True):
        console = make_console(terminal)
        with Panel(total, "demos", "t", console=console) as panel:
            panel.update(done, {"epoch": 1, "success": None})
        assert "left" not in text_of(console) and "None" not in text_of(console)


def test_several_levels_and_several_runs(clock: Clock) -> None:
    console = make_console(False)
    with Panel(100, "frames", "PPO", runs=2, console=console) as panel:
        clock.now += 1
        panel.update(50, {"success": {"Open": 0.5, "Pickup": 1.0}})
        panel.update(10, {"success": {"Open": 0.25, "Pickup": 0.0}}, run=1)
    assert text_of(console).splitlines()[1:] == [
        "run 0  success Open 50.0 %, Pickup 100.0 %  1 s left",
        "run 1  success Open 25.0 %, Pickup 0.0 %  9 s left",
    ]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_terminal_shows_progress_metrics_and_success_over_time(width: int, clock: Clock) -> None:
    console = make_console(True, width)
    with Panel(614_400, "demos", "imitation [GoToLocal]", console=console) as panel:
        clock.now += 180
        panel.update(307_200, ROW | {"success": 0.1})
        # A row without success keeps the last one.
        panel.update(307_200, {key: value for key, value in ROW.items() if key != "success"})
    picture = text_of(console)
    for part in ("imitation [GoToLocal]", "307,200 of 614,400 demos", "min left", "10.0 %", "epoch", "▁"):
        assert part in picture
    assert max(len(line) for line in picture.split("\n") if "\x1b" not in line) <= width


def test_parallel_runs_have_a_line_each(clock: Clock) -> None:
    console = make_console(True)
    with Panel(100, "frames", "PPO", runs=3, console=console) as panel:
        for run in range(3):
            clock.now += 1
            panel.update(10 * run + 10, {"update": 777 + run, "success": run / 2}, run=run)
    picture = text_of(console)
    assert all(str(777 + run) in picture for run in range(3)) and "20 of 100 frames" in picture


def test_quiet_shows_nothing() -> None:
    for terminal in (False, True):
        console = make_console(terminal)
        with Panel(10, "demos", "t", quiet=True, console=console) as panel:
            panel.update(1, ROW)
        assert text_of(console) == ""


def test_an_error_restores_the_terminal() -> None:
    console = make_console(True)
    with pytest.raises(RuntimeError), Panel(10, "demos", "t", console=console):
        raise RuntimeError
    # The cursor is shown again.
    assert text_of(console).rstrip().endswith("\x1b[?25h")


def test_bars_grow_with_success() -> None:
    assert draw_bars([]) == "" and draw_bars([0.0, 0.5, 1.0]) == "▁▅█" and draw_bars([-1.0, 2.0]) == "▁█"
    assert draw_bars([rate / 999 for rate in range(1000)], width=8) == "▁▂▃▄▅▆▇█"


def test_metrics_and_durations_are_readable() -> None:
    assert describe("value_loss", 0.00123) == "value loss 0.00123" and describe("epoch", 1200) == "epoch 1,200"
    assert describe("loss", math.nan) == "loss nan" and describe("note", "x") == "note x"
    assert describe("validation_accuracy", 0.5) == "validation accuracy 50.0 %"
    assert describe("demos_per_second", 1234.5) == "1,234 demos/s"
    times = {0: "0 s", 99: "99 s", 100: "2 min", 3570: "1 h 0 min", 7830: "2 h 10 min", 273_600: "3 d 4 h"}
    assert {seconds: describe_time(seconds) for seconds in times} == times


def test_notes_before_training_are_shown(clock: Clock) -> None:
    console = make_console(False)
    with Panel(100, "demos", "imitation", console=console) as panel:
        panel.note("collecting, 1 of 9 demonstrations")
        clock.now += 5
        panel.note("collecting, 4 of 9 demonstrations")
        panel.note("collecting, 5 of 9 demonstrations")
    assert text_of(console).splitlines() == ["imitation", "collecting, 4 of 9 demonstrations"]
    console = make_console(True)
    with Panel(100, "demos", "imitation", console=console) as panel:
        panel.note("collecting, 4 of 9 demonstrations")
    assert "imitation: collecting, 4 of 9 demonstrations" in text_of(console)


def test_a_long_silence_ends_with_a_line(clock: Clock) -> None:
    console = make_console(False)
    with Panel(100, "demos", "imitation", console=console) as panel:
        for done in range(1, 60):
            clock.now += 1
            panel.advance(done)
    assert len(text_of(console).splitlines()) == 2 and "demos 30" in text_of(console)


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_the_terminal_does_not_echo_control_keys_while_a_panel_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """An echoed ^C would shift the panel by a line, and leave half of its border behind."""
    import termios

    master, slave = os.openpty()
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        before = termios.tcgetattr(slave)
        with hidden_control_keys():
            assert not termios.tcgetattr(slave)[3] & termios.ECHOCTL
        assert termios.tcgetattr(slave) == before and before[3] & termios.ECHOCTL
    os.close(master)
