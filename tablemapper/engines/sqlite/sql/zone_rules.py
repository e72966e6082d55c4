"""What a time zone means is part of a definition: a catalogue has fingerprints of the rules that each is maintained by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ....keys.cuts import CUT, cut_of
from ....keys.zones import fingerprint, zone_fault
from ....schema.forms import Forms
from .catalogue import Catalogue, Twin

__all__ = ["other_rules", "refused_writes", "rules_of", "states_here"]


def rules_of(forms: Forms, label: str) -> dict[str, str] | UnsetType:
    """Return the zones of an index or an aggregate, each with the fingerprint of its rules here; empty if it has none."""
    owner, _, index = label.partition(".")
    form = forms.get(owner)
    definition = None if form is None else form.indexes.get(index) if index else form.aggregate or None
    texts = _texts(msgspec.to_builtins(definition))
    cuts = [cut_of(found) for text in texts if (found := CUT.search(text)) is not None]
    zones = sorted({cut.zone for cut in cuts if cut.is_local})
    return {zone: "" if zone_fault(zone) else fingerprint(zone) for zone in zones} or UNSET


def _texts(form: Any) -> Iterator[str]:
    if isinstance(form, str):
        yield form
    for part in form.values() if isinstance(form, dict) else form if isinstance(form, list | tuple) else ():
        yield from _texts(part)


def other_rules(catalogue: Catalogue) -> dict[str, dict[str, str]]:
    """Return what is maintained by other rules than those here: labels, each with the rules that its zones have here."""
    return {
        label: rules
        for label, state in catalogue.states.items()
        if state.state != "disabled"
        and (rules := rules_of(catalogue.models, label)) is not UNSET
        and rules != state.zones
    }


def states_here(catalogue: Catalogue, guests: Iterable[Twin]) -> dict[str, str]:
    """Return the states of indexes and aggregates, as those know them who may live in twins.

    ``ruled`` is what is maintained by other rules than those here, ``beside`` what is disabled in a twin: there nothing is built.
    """
    others = other_rules(catalogue).keys()
    states: dict[str, str] = {
        label: "ruled" if {label, label.partition(".")[0]} & others else form.state
        for label, form in catalogue.states.items()
    }
    beside = {label for twin in guests for label, form in twin.catalogue.states.items() if form.state == "disabled"}
    return states | dict.fromkeys(beside, "beside")


def refused_writes(catalogue: Catalogue) -> dict[str, list[str]]:
    """Return why entities cannot be written, by the name of their class."""
    found: dict[str, list[str]] = {}
    for label, rules in other_rules(catalogue).items():
        owner = label.partition(".")[0]
        aggregate = catalogue.models[owner].aggregate
        found.setdefault(aggregate.of if aggregate else owner, []).append(
            f"{label} is maintained by other rules of {', '.join(rules)} than this system has; update its time zones (pip "
            "install -U tzdata), or open the store anew: then it is built by those of here"
        )
    return found
