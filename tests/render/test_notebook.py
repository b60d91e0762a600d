"""How environments, agents, demonstrations and runs show themselves in notebooks and in `repr`."""

import base64
import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from babyai.agents import Agent
from babyai.demos.collect import collect
from babyai.demos.store import DemoFile
from babyai.engine import Engine
from babyai.render.film import draw_scene
from babyai.render.notebook import html_curve, html_of_wrapper, html_table, register_with_ipython
from babyai.render.scene import take_scene
from babyai.training.run import Run


def pictures(page: str) -> list[np.ndarray]:
    """The pictures in a page, which must be well-formed: every tag that is opened is closed."""

    class Checker(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.opened: list[str] = []

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag != "img":
                self.opened.append(tag)

        def handle_startendtag(self, tag: str, attrs: Any) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert self.opened.pop() == tag

    checker = Checker()
    checker.feed(page)
    assert checker.opened == []
    encoded = re.findall(r"base64,([^\"]+)", page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(each)))) for each in encoded]


def test_an_environment_and_its_wrappers() -> None:
    env = gym.make("babyai/GoToLocal-v0")
    assert "\n" not in str(env) and "BabyAIEnv" in str(env)
    env.reset(seed=0)
    # The environment itself is drawn; inside a wrapper it is one line.
    assert "\n" in str(env.unwrapped) and "\n" not in str(env) and "babyai/GoToLocal-v0" in str(env)
    assert f"{env.unwrapped}" == repr(env.unwrapped) and f"{env.unwrapped!s}" == str(env.unwrapped)
    page = html_of_wrapper(env)
    assert page is not None and env.unwrapped.mission in page
    np.testing.assert_array_equal(pictures(page)[0], draw_scene(take_scene(env.unwrapped.engine)))
    assert html_of_wrapper(gym.make("CartPole-v1")) is None


def test_a_vector_environment_shows_its_first_worlds() -> None:
    envs = gym.make_vec("babyai/GoToLocal-v0", num_envs=9)
    assert pictures(envs._repr_html_()) == []
    envs.reset(seed=0)
    page = envs._repr_html_()
    assert len(pictures(page)) == 4 and "num_envs=9" in page and "\n" not in repr(envs)


def test_notebooks_show_wrapped_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[tuple[str, str], Any] = {}
    formatter = SimpleNamespace(for_type_by_name=lambda module, name, show: known.update({(module, name): show}))
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": formatter}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    register_with_ipython()
    for (module, name), show in known.items():
        assert isinstance(getattr(sys.modules[module], name), type) and show is html_of_wrapper
    assert len(known) == 2
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    register_with_ipython()


def test_an_agent() -> None:
    agent = Agent.create("bow_endpool_res", seed=0, memory_dim=16)
    assert repr(agent) == f"Agent(bow_endpool_res, small, {agent.num_parameters:,} parameters, cpu)"
    page = agent._repr_html_()
    assert pictures(page) == [] and f"{agent.num_parameters:,}" in page and "memory_dim" in page


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
def test_demonstrations(tmp_path: Path, rules: Any) -> None:
    path = tmp_path / "a.parquet"
    collect("UnlockPickup", 3, 0, path, rules=rules)
    with DemoFile(path) as file:
        assert repr(file) == f"DemoFile({str(path)!r}, 3 demonstrations of UnlockPickup)"
        demo = file[0]
        assert repr(demo).startswith("Demo('UnlockPickup', seed 0, 'pick up the ") and "\n" not in repr(demo)
        assert re.fullmatch(r"Demos\(3 demonstrations of UnlockPickup, \d+ steps\)", repr(file.read()))
        page = file._repr_html_()
        assert len(pictures(page)) == 2 and "3 by expert paper" in page
    first, last = pictures(demo._repr_html_())
    engine = Engine("UnlockPickup", rules=rules)
    engine.reset([0])
    np.testing.assert_array_equal(first, draw_scene(take_scene(engine)))
    assert not np.array_equal(first, last)


def test_a_run(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", {"levels": "<GoToLocal>"}, "imitation") as run:
        for loss in (2.0, 1.0, None):
            run.log({"loss": loss, "valid": {"success": 0.5}})
        page = run._repr_html_()
        assert repr(run) == f"Run({str(tmp_path / 'run')!r})"
    assert pictures(page) == [] and "&lt;GoToLocal&gt;" in page and "valid/success" in page and "from 2 to 1" in page
    # Reading needs no lock.
    assert Run(tmp_path / "run")._repr_html_() == page
    assert "no run" in Run(tmp_path / "nothing")._repr_html_()


def test_tables_and_curves_escape_and_format() -> None:
    assert "&lt;b&gt;" in html_table("<b>", {"x": 1}) and "1,234,567" in html_table("", {"x": 1234567})
    points = re.findall(r'points="([^"]*)"', html_curve("loss", [3.0, 3.0, 3.0]))[0]
    assert len(points.split()) == 3 and len({point.split(",")[1] for point in points.split()}) == 1
    assert "nan" not in html_curve("loss", [1.0])
