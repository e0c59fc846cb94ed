"""Owns which brokers a run was asked for: reading --queuey-broker, their ids, and which of them a mark keeps.

Refuses to look for any of them.
"""

import re
from collections.abc import Collection
from typing import Final, NamedTuple

KINDS: Final = ("fake", "rabbitmq")
FAKE_VERSIONS: Final = ("3.10", "4.0", "4.3")
"""What queuey_fake imitates, the newest last; repeated here, as it is not loaded for a run without it."""
GROUPS: Final = ("auto", "all")
_VERSIONED: Final = f"of a version: {', '.join(f'fake-{version}' for version in FAKE_VERSIONS)}, rabbitmq-VERSION"


# Not a dataclass, for the reason that `options` gives.
class AskedBroker(NamedTuple):
    """One broker that tests run on."""

    kind: str
    version: str | None
    """The version that the fake imitates, or the tag of a real broker's image; None is whichever there is."""
    id: str
    """How it is called in the ids of tests."""

    def is_meant_by(self, word: str) -> bool:
        """Tell whether a word of a mark, `fake` or `fake-3.10`, means this one, as far as is known before it runs."""
        kind, _, version = word.partition("-")
        own = self.version or (FAKE_VERSIONS[-1] if self.kind == "fake" else None)
        return self.kind == kind and (not version or own is None or _same_version(version, own))

    def is_of(self, version: str) -> bool:
        """Tell whether a broker that says it is of a version is the one that was asked for."""
        return self.version is None or _same_version(self.version, version)


class Asked(NamedTuple):
    """Every broker that a run was asked for."""

    brokers: tuple[AskedBroker, ...]
    may_be_missing: bool
    """Whether a real one that cannot be had is passed over: the run was asked for `auto`."""

    @property
    def real(self) -> tuple[AskedBroker, ...]:
        """Return the real ones."""
        return tuple(broker for broker in self.brokers if broker.kind == "rabbitmq")


def parse_brokers(text: str) -> Asked:
    """Return the brokers that a value of --queuey-broker names; raises ValueError."""
    words = [word.strip() for word in text.split(",")]
    pairs: dict[tuple[str, str | None], None] = {}
    for word in words:
        if word in GROUPS:
            pairs.update(dict.fromkeys((kind, None) for kind in KINDS))
            continue
        if not _is_known(word):
            raise ValueError(f"it must be {', '.join((*KINDS, *GROUPS))}, or several with commas between; {_VERSIONED}")
        kind, _, version = word.partition("-")
        pairs[kind, version or None] = None
    # A test's id names the version only where that tells two apart.
    several = {kind for kind in KINDS if sum(pair[0] == kind for pair in pairs) > 1}
    brokers = [AskedBroker(kind, version, _id(kind, version, kind in several)) for kind, version in pairs]
    ids = [broker.id for broker in brokers]
    if len(set(ids)) < len(ids):
        raise ValueError(f"it names a broker twice: {', '.join(ids)}")
    return Asked(tuple(sorted(brokers, key=lambda broker: KINDS.index(broker.kind))), may_be_missing="auto" in words)


def check_mark(words: tuple[object, ...], others: Collection[str]) -> None:
    """Raise ValueError where a word of a mark means no broker that there can be, or it has others than `reason`."""
    if not set(others) <= {"reason"}:
        raise ValueError("it takes kinds of broker, and a reason=")
    if not words or not all(isinstance(word, str) and _is_known(word) for word in words):
        raise ValueError(f"the kinds of broker are 'fake' and 'rabbitmq'; {_VERSIONED}")


def _is_known(word: str) -> bool:
    kind, dash, version = word.partition("-")
    return kind in KINDS and bool(dash) == bool(version) and (kind != "fake" or version in ("", *FAKE_VERSIONS))


def _id(kind: str, version: str | None, is_one_of_several: bool) -> str:  # noqa: FBT001 -- of this module alone
    if not is_one_of_several:
        return kind
    if kind == "fake" and version is None:
        version = FAKE_VERSIONS[-1]
    return kind if version is None else f"{kind}-{version}"


def _same_version(asked: str, found: str) -> bool:
    """Tell whether 4.0.5 is a 4.0; a tag that says no version, as `latest` does, may be any."""
    asked_number, found_number = (re.match(r"\d+(\.\d+)*", version) for version in (asked, found))
    if asked_number is None or found_number is None:
        return True
    return f"{found_number[0]}.".startswith(f"{asked_number[0]}.")
