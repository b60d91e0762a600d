"""The structure of what checkpoints hold as JSON."""

from typing import Any

import pytest

from babyai.training.saved_state import check_structure

FRESH = {"demos": 0, "replay": {"rows": [0, 0], "kind": "file", "names": []}, "done": False, "best": None}


def test_the_same_structure_is_accepted() -> None:
    check_structure(
        {**FRESH, "demos": 7, "replay": {"rows": [3], "kind": "x", "names": ["a", None]}, "best": 1.5}, FRESH
    )


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"demos": [1]}, "state.demos"),
        ({"demos": True}, "state.demos"),
        ({"demos": "1"}, "state.demos"),
        ({"done": 1}, "state.done"),
        ({"replay": []}, "state.replay"),
        ({"replay": {"rows": [0, "x"], "kind": "", "names": []}}, "rows.1"),
        ({"replay": {"rows": 3, "kind": "", "names": []}}, "rows"),
        ({"replay": {"rows": []}}, "kind"),
        ({"more": 1}, "demos"),
    ],
)
def test_another_structure_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(ValueError, match=path):
        check_structure({**FRESH, **change}, FRESH)
