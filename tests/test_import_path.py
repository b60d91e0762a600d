"""Import paths: files, modules, and what is wrong with the others. Policies are loaded in `tests/agents`."""

from pathlib import Path

import pytest

from babyai.import_path import is_import_path, load_object


def test_what_is_an_import_path() -> None:
    assert is_import_path("agent.py:act") and is_import_path("package.module:act")
    assert not is_import_path("expert") and not is_import_path("runs/local")


def test_functions_of_a_file_and_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("NAME = 'turn left'\n")
    file = tmp_path / "agent.py"
    # It may import another file in its folder.
    file.write_text("from words import NAME\n\n\ndef act(text):\n    return NAME\n")
    assert load_object(f"{file}:act")("") == "turn left"
    assert load_object("os.path:join") is __import__("os").path.join


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("agent.py:act", r"no such file: agent\.py"),
        ("no_such_module:act", "'no_such_module'.*file.py:Name"),
        ("os.path:jion", "'jion'.*'join'"),
        ("os.path:", "package.module:Name"),
    ],
)
def test_what_cannot_be_found_is_explained(
    path: str, fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=fact):
        load_object(path, "function")
