"""What a file of demonstrations says about itself, and the sentences with which one is refused.

A seed and its actions mean something only in the world they were made in. So a file carries the rule set and, of each
level, the version of its rules and all its settings; what differs from the installed catalog is named, and refused.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from babyai import __version__
from babyai.levels.catalog import Level, Rules, UnknownLevelError, find_level

FORMAT = "babyai demonstrations"
FORMAT_VERSION = 1
# Keys of the Parquet file's own metadata: the header as JSON, and its digest.
HEADER_KEY, DIGEST_KEY = "babyai", "babyai_sha256"
# Raised by hand whenever an expert would act otherwise on a mission it solved before.
EXPERT_VERSION = 1

Origin = Literal["expert", "agent", "human"]


class DemoFileError(ValueError):
    """A file of demonstrations that cannot be read, or must not be used."""


@dataclass(frozen=True)
class Source:
    """Where consecutive rows of a file come from."""

    origin: Origin
    rows: int
    """How many rows."""
    style: str = ""
    """The expert's style, or the name of an agent or a person."""
    version: int = 0
    """The expert's version; 0 for others."""
    babyai: str = __version__
    unsolved: dict[str, list[int]] = field(default_factory=dict)
    """The seeds, by level, that were tried and gave no demonstration."""

    def __post_init__(self) -> None:
        if self.origin not in get_args(Origin):
            raise ValueError(f"unknown origin {self.origin!r}; demonstrations come from {', '.join(get_args(Origin))}")


@dataclass(frozen=True)
class Header:
    """What holds for a whole file."""

    rules: Rules
    levels: dict[str, dict[str, Any]]
    """The settings of each level, by its name; a row's level is one of these."""
    sources: tuple[Source, ...] = ()

    @property
    def rows(self) -> int:
        """How many demonstrations the file must have."""
        return sum(source.rows for source in self.sources)

    def to_metadata(self) -> dict[str, str]:
        """The header as a Parquet file carries it."""
        told = {"format": FORMAT, "format_version": FORMAT_VERSION} | asdict(self)
        text = json.dumps(told)
        return {HEADER_KEY: text, DIGEST_KEY: digest_of(text)}


def digest_of(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def settings_of(level: Level) -> dict[str, Any]:
    """All that makes a level what it is, in the types of JSON."""
    settings = {part.name: getattr(level, part.name) for part in fields(level)}
    if callable(level.recipe):
        settings["recipe"] = f"{level.recipe.__module__}.{level.recipe.__qualname__}"
    return json.loads(json.dumps(settings))


def make_header(levels: Iterable[Level], rules: Rules, *sources: Source) -> Header:
    """The header of a file with these levels.

    Raises:
        ValueError: Two different levels have the same name.
    """
    settings: dict[str, dict[str, Any]] = {}
    for level in levels:
        told = settings_of(level)
        if settings.setdefault(level.name, told) != told:
            raise ValueError(f"two different levels are called {level.name!r}; a file can hold only one of them")
    return Header(rules, settings, sources)


def read_header(metadata: dict[bytes, bytes] | None, name: str) -> Header:
    """The header in a Parquet file's metadata; `name` is what errors call the file.

    Raises:
        DemoFileError: There is none, it is of a newer format, or it has been changed.
    """
    metadata = metadata or {}
    text, digest = metadata.get(HEADER_KEY.encode()), metadata.get(DIGEST_KEY.encode(), b"")
    if text is None:
        raise DemoFileError(f"{name} is a Parquet file, but not one of demonstrations: it has no header of babyai")
    try:
        told = json.loads(text)
        form, version = told.pop("format"), told.pop("format_version")
    except (ValueError, KeyError, AttributeError):
        raise DemoFileError(f"{name} is damaged: its header cannot be read") from None
    if form == FORMAT and isinstance(version, int) and version > FORMAT_VERSION:
        raise DemoFileError(
            f"{name} is newer than this program: its format is {version}, and babyai {__version__} reads up to "
            f"{FORMAT_VERSION}; install a newer babyai"
        )
    if form != FORMAT or digest_of(text.decode(errors="replace")).encode() != digest:
        raise DemoFileError(f"{name} is damaged: its header is not as it was written")
    try:
        sources = tuple(Source(**source) for source in told.pop("sources"))
        return Header(**told, sources=sources)
    except (TypeError, ValueError) as error:
        raise DemoFileError(f"{name} is damaged: its header makes no sense ({error})") from None


def check_rules(header: Header, name: str) -> None:
    """Makes sure that the installed levels are those the file was made with.

    Raises:
        DemoFileError: They are not; the message says what differs.
    """
    differences = [text for level in header.levels for text in _differences(level, header)]
    if differences:
        shown = "; ".join(differences[:5]) + (f"; and {len(differences) - 5} more" if len(differences) > 5 else "")
        raise DemoFileError(
            f"{name} was made under other rules than those of the installed babyai {__version__}, where its "
            f"demonstrations would go wrong: {shown}"
        )


def _differences(name: str, header: Header) -> list[str]:
    """What sets a level of the file apart from the installed one, a sentence each."""
    then = header.levels[name]
    try:
        now = settings_of(find_level(name, header.rules))
    except UnknownLevelError as error:
        return [f"{error} (a level of your own must be registered first)"]
    if then.get("version") != now["version"]:
        return [f"level {name!r} had version {then.get('version')} of its rules, and has version {now['version']} now"]
    return [
        f"{key} of level {name!r} was {then.get(key)!r}, and is {now.get(key)!r} now"
        for key in sorted(then.keys() | now.keys())
        if then.get(key) != now.get(key)
    ]


def check_same_world(first: Header, other: Header, first_name: str, other_name: str) -> None:
    """Makes sure that two files can become one.

    Raises:
        DemoFileError: Their rule sets, or levels of the same name, differ.
    """
    if first.rules != other.rules:
        raise DemoFileError(
            f"{first_name} was made with rules={first.rules!r} and {other_name} with rules={other.rules!r}: "
            f"one file holds one rule set"
        )
    for name in first.levels.keys() & other.levels.keys():
        if first.levels[name] != other.levels[name]:
            raise DemoFileError(f"level {name!r} is not the same in {first_name} and in {other_name}")
