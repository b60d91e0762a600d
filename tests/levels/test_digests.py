"""No level changes its behavior without a new version: demos and results name the version they were made with."""

import pytest

from babyai import LEVELS
from tests.level_digests import RULES, Behavior, behavior_of, complaint, read_digests
from tests.scale import COMPILER_OFF

SOME = sorted(LEVELS)[:: 30 if COMPILER_OFF else 1]


@pytest.mark.parametrize("name", SOME)
def test_a_level_behaves_as_its_version_says(name: str) -> None:
    committed = read_digests().get(name, {})
    complaints = [complaint(name, rules, behavior_of(name, rules), committed.get(rules)) for rules in RULES]
    assert not any(complaints), "\n".join(filter(None, complaints))


def test_no_level_is_remembered_that_is_gone() -> None:
    assert read_digests().keys() == LEVELS.keys()


def test_every_change_is_explained() -> None:
    before = Behavior(1, "aaaa")
    assert complaint("GoTo", "paper", before, before) is None
    assert "behaves otherwise than version 1 did" in complaint("GoTo", "paper", Behavior(1, "bbbb"), before)
    assert "raise `version`" in complaint("GoTo", "paper", Behavior(1, "bbbb"), before)
    assert "is version 2, not 1; run" in complaint("GoTo", "paper", Behavior(2, "bbbb"), before)
    assert "is new; run" in complaint("GoTo", "paper", before, None)
