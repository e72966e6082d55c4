"""The rules of time zones: an index or aggregate over local times is maintained by the rules whose fingerprint it has.

The rules of this system may be others. Then the index cannot be read or written until it is built anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ..keys.truncation import CUT, cut_of
from ..keys.zones import fingerprint, release, zone_fault
from ..schema.labels import Label
from ..schema.specs import BuildStateSpec, Forms
from .catalogue import Catalogue, Mirror


def _rules_of(forms: Forms, label: str) -> dict[str, str] | UnsetType:
    """Return the zones of an index or an aggregate, if it has some, each with the fingerprint of its rules here."""
    owner, index = Label.of(label)
    form = forms.get(owner)
    definition = None if form is None else form.indexes.get(index) if index else form.aggregate or None
    zones = _zones_of(msgspec.json.encode(definition))
    return {zone: "" if zone_fault(zone) else fingerprint(zone) for zone in zones} or UNSET


@lru_cache(maxsize=None)  # of each definition that a process meets; a store asks several times while it is opened
def _zones_of(definition: bytes) -> tuple[str, ...]:
    texts = _texts(msgspec.json.decode(definition))
    cuts = [cut_of(match) for text in texts if (match := CUT.search(text)) is not None]
    return tuple(sorted({cut.zone for cut in cuts if cut.is_local}))


def ruled_here(forms: Forms, label: str, state: BuildStateSpec) -> BuildStateSpec:
    """Return the state of an index or an aggregate that is maintained by the rules of this system."""
    rules = _rules_of(forms, label)
    return replace(state, zones=rules, release=UNSET if rules is UNSET else _release(rules))


def _release(zones: Iterable[str]) -> str | UnsetType:
    """Return the oldest release of the IANA database that this system has of some zones."""
    return min(map(release, zones)) or UNSET


def _texts(form: Any) -> Iterator[str]:
    if isinstance(form, str):
        yield form
    for part in form.values() if isinstance(form, dict) else form if isinstance(form, list | tuple) else ():
        yield from _texts(part)


def other_rules(catalogue: Catalogue) -> dict[str, dict[str, str]]:
    """Return the labels that are maintained by other rules than this system's, each with the rules of its zones."""
    return {
        label: rules
        for label, state in catalogue.states.items()
        if state.state != "disabled"
        and (rules := _rules_of(catalogue.models, label)) is not UNSET
        and rules != state.zones
    }


def outdated(catalogue: Catalogue, *, newer_too: bool = False) -> list[str]:
    """Return the labels to build anew: they are maintained by other rules, which are not those of a newer release.

    An index over a zone that this system does not know is not among them.

    Args:
        newer_too: whether to include those that are maintained by the rules of a newer release.
    """
    return [
        label
        for label, rules in other_rules(catalogue).items()
        if all(rules.values()) and (newer_too or not _newer(catalogue.states[label]))
    ]


def _newer(state: BuildStateSpec) -> bool:
    """Return whether an index or aggregate is maintained by the rules of a newer release than this system has."""
    if state.release is UNSET or state.zones is UNSET:
        return False
    own_release = _release(state.zones)
    return own_release is not UNSET and state.release > own_release


def states_here(catalogue: Catalogue, other_labels: Collection[str], guests: Iterable[Mirror]) -> dict[str, str]:
    """Return the states of indexes and aggregates for this process, by label.

    ``ruled``: it is maintained by other rules. ``beside``: it is disabled in a twin, which builds nothing.

    Args:
        other_labels: the labels that are maintained by other rules.
        guests: the twins that the classes use.
    """
    states: dict[str, str] = {
        label: "ruled" if {label, Label.of(label).owner}.intersection(other_labels) else form.state
        for label, form in catalogue.states.items()
    }
    disabled = {label for twin in guests for label, form in twin.catalogue.states.items() if form.state == "disabled"}
    return states | dict.fromkeys(disabled, "beside")


def refused_writes(catalogue: Catalogue, rules_by_label: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return the reasons why `other_rules` prevent writes of entities, by the name of their class."""
    reasons: dict[str, list[str]] = {}
    for label, rules in rules_by_label.items():
        owner, state = Label.of(label).owner, catalogue.states[label]
        kind = f"newer ({state.release})" if _newer(state) else "other"
        reasons.setdefault(catalogue.models[owner].source or owner, []).append(
            f"{label} is maintained by {kind} rules of {', '.join(rules)} than this system has; "
            "update its time zones (pip install -U tzdata), or give those up: store.repair() builds it by the rules of here"
        )
    return reasons
