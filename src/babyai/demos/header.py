"""The header of a file of demonstrations, and checks of files against the installed levels.

A seed and its actions can only be replayed in the world they were recorded in. A file therefore stores the rule set
and, for each level, the version of its rules and all its settings. If these differ from the installed catalog, opening
the file raises an error that names the differences.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from babyai import __version__
from babyai.import_path import plain_module_name
from babyai.levels.catalog import Level, Rules, UnknownLevelError, find_level

FORMAT = "babyai demonstrations"
FORMAT_VERSION = 1
# Keys of the Parquet file's metadata: the header as JSON, and its SHA-256 digest.
HEADER_KEY = "babyai"
DIGEST_KEY = "babyai_sha256"
# Increase this by hand whenever an expert's actions change on a mission that it solved before.
EXPERT_VERSION = 1

Origin = Literal["expert", "agent", "human"]


# Settings of a level that files store under another name, because files outlive names.
STORED_NAMES = {"colors": "colours"}


class DemoFileError(ValueError):
    """A file of demonstrations cannot be read, or must not be used with the installed levels."""


@dataclass(frozen=True)
class Source:
    """The origin of a range of consecutive rows."""

    origin: Origin
    rows: int
    """Number of rows."""
    style: str = ""
    """Style of the expert, or name of the agent or person."""
    version: int = 0
    """Version of the expert; 0 for other origins."""
    babyai: str = __version__
    """Version of babyai."""
    unsolved: dict[str, list[int]] = field(default_factory=dict)
    """Seeds that were tried without success, by level."""

    def __post_init__(self) -> None:
        if self.origin not in get_args(Origin):
            raise ValueError(f"unknown origin {self.origin!r}; expected one of {', '.join(get_args(Origin))}")


@dataclass(frozen=True)
class Header:
    """The rule set, the levels and the sources of a file."""

    rules: Rules
    levels: dict[str, dict[str, Any]]
    """The settings of each level, by name. The level of every row is one of these."""
    sources: tuple[Source, ...] = ()
    """The sources of the rows, in order."""

    @property
    def rows(self) -> int:
        """Number of demonstrations in the file."""
        return sum(source.rows for source in self.sources)

    def to_metadata(self) -> dict[str, str]:
        """The header as metadata of a Parquet file."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION} | asdict(self)
        text = json.dumps(content)
        return {HEADER_KEY: text, DIGEST_KEY: digest_of(text)}


def digest_of(text: str) -> str:
    """The SHA-256 digest of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def settings_of(level: Level) -> dict[str, Any]:
    """All settings of a level, as JSON types."""
    settings = {STORED_NAMES.get(part.name, part.name): getattr(level, part.name) for part in fields(level)}
    if callable(level.recipe):
        settings["recipe"] = f"{plain_module_name(level.recipe.__module__)}.{level.recipe.__qualname__}"
    return json.loads(json.dumps(settings))


def make_header(levels: Iterable[Level], rules: Rules, *sources: Source) -> Header:
    """The header of a file with these levels.

    Raises:
        ValueError: Two different levels have the same name.
    """
    settings: dict[str, dict[str, Any]] = {}
    for level in levels:
        level_settings = settings_of(level)
        if settings.setdefault(level.name, level_settings) != level_settings:
            raise ValueError(f"two different levels are called {level.name!r}; a file can have only one of them")
    return Header(rules, settings, sources)


def read_header(metadata: dict[bytes, bytes] | None, name: str) -> Header:
    """The header in a Parquet file's metadata; `name` is the file's name in error messages.

    Raises:
        DemoFileError: There is no header, its format is newer, or it has been changed.
    """
    metadata = metadata or {}
    text = metadata.get(HEADER_KEY.encode())
    digest = metadata.get(DIGEST_KEY.encode(), b"")
    if text is None:
        raise DemoFileError(f"{name} is a Parquet file, but has no header of babyai demonstrations")
    try:
        content = json.loads(text)
        file_format = content.pop("format")
        version = content.pop("format_version")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise DemoFileError(f"{name} is damaged: its header cannot be parsed") from None
    if file_format == FORMAT and isinstance(version, int) and version > FORMAT_VERSION:
        raise DemoFileError(
            f"{name} has format version {version}, but babyai {__version__} supports only up to {FORMAT_VERSION}; "
            f"install a newer babyai"
        )
    if file_format != FORMAT or digest_of(text.decode(errors="replace")).encode() != digest:
        raise DemoFileError(f"{name} is damaged: its header does not match its digest")
    try:
        sources = tuple(Source(**source) for source in content.pop("sources"))
        header = Header(**content, sources=sources)
        _check_types(header)
    except (TypeError, ValueError, KeyError) as error:
        raise DemoFileError(f"{name} is damaged: its header is invalid ({error})") from None
    return header


def _check_types(header: Header) -> None:
    """Raises ValueError if a part of a header is of a wrong type: a digest shows damage, not intent."""

    def require(valid: bool, problem: str) -> None:
        if not valid:
            raise ValueError(problem)

    require(header.rules in get_args(Rules), "unknown rules")
    require(isinstance(header.levels, dict), "levels are not named")
    require(all(isinstance(settings, dict) for settings in header.levels.values()), "a level has no settings")
    for source in header.sources:
        counts = (source.rows, source.version)
        require(all(type(count) is int and 0 <= count < 2**63 for count in counts), "a source has no number of rows")
        require(isinstance(source.style, str) and isinstance(source.babyai, str), "a source has no name")
        require(isinstance(source.unsolved, dict), "unsolved seeds are not by level")
        for seeds in source.unsolved.values():
            valid = isinstance(seeds, list) and all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds)
            require(valid, "unsolved seeds are not integers")


def check_rules(header: Header, name: str) -> None:
    """Checks that the installed levels equal those the file was recorded with.

    Raises:
        DemoFileError: They differ; the message names the differences.
    """
    differences = [text for level in header.levels for text in _differences(level, header)]
    if differences:
        shown = "; ".join(differences[:5]) + (f"; and {len(differences) - 5} more" if len(differences) > 5 else "")
        raise DemoFileError(
            f"{name} was recorded with other rules than those of the installed babyai {__version__}, so it cannot be "
            f"replayed: {shown}"
        )


def _differences(name: str, header: Header) -> list[str]:
    """The differences between a level of the file and the installed one, one phrase each."""
    old = header.levels[name]
    try:
        new = settings_of(find_level(name, header.rules))
    except UnknownLevelError as error:
        return [f"{error} (a custom level must be registered first; in commands: --levels file.py:Level)"]
    if old.get("version") != new["version"]:
        return [f"the rules of level {name!r} had version {old.get('version')}, now {new['version']}"]
    return [
        f"{key} of level {name!r} was {old.get(key)!r}, now {new.get(key)!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def check_same_world(first: Header, other: Header, first_name: str, other_name: str) -> None:
    """Checks that two files can be merged.

    Raises:
        DemoFileError: Their rule sets, or levels with the same name, differ.
    """
    if first.rules != other.rules:
        raise DemoFileError(
            f"{first_name} has rules={first.rules!r}, but {other_name} has rules={other.rules!r}: a file can have only "
            f"one rule set"
        )
    for name in first.levels.keys() & other.levels.keys():
        if first.levels[name] != other.levels[name]:
            raise DemoFileError(f"the settings of level {name!r} differ between {first_name} and {other_name}")
