"""No level changes its behavior without a new version, because demos and results refer to the version."""

import pytest

from babyai import LEVELS
from tests.level_digests import RULES, Behavior, behavior_of, explain_change, read_digests
from tests.scale import COMPILER_OFF

SOME = sorted(LEVELS)[:: 30 if COMPILER_OFF else 1]


@pytest.mark.parametrize("name", SOME)
def test_levels_behave_like_their_committed_version(name: str) -> None:
    committed = read_digests().get(name, {})
    changes = [explain_change(name, rules, behavior_of(name, rules), committed.get(rules)) for rules in RULES]
    assert not any(changes), "\n".join(filter(None, changes))


def test_the_committed_file_lists_exactly_the_levels_of_the_catalog() -> None:
    assert read_digests().keys() == LEVELS.keys()


def test_messages_name_the_versions_and_the_fix() -> None:
    before = Behavior(1, "aaaa")
    assert explain_change("GoTo", "paper", before, before) is None
    changed = explain_change("GoTo", "paper", Behavior(1, "bbbb"), before)
    assert "GoTo (paper rules)" in changed and "version 1" in changed
    assert "increase `version`" in changed
    assert "is version 2, not 1; run" in explain_change("GoTo", "paper", Behavior(2, "bbbb"), before)
    assert "is new; run" in explain_change("GoTo", "paper", before, None)
