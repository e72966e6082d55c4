"""Parts in boxes, by color: two classes in a table, an index, an aggregate."""

from __future__ import annotations

import tablemapper as tm

from .classes import grouped


class Part(tm.Entity, table="Parts"):
    box: tm.Field[str]
    number: tm.Field[int]
    color: tm.Field[str] = tm.field(default="red")
    weight: tm.Field[int] = tm.field(default=0)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{box}", row="{number}")
    by_color = tm.Index[str](partition="{color}")


Colors = grouped("Colors", Part, "color", n=tm.count())


class Note(tm.Entity, table="Parts"):
    box: tm.Field[str]
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[str](partition="{box}", row="Note")


MODELS: list[type[tm.Record]] = [Part, Colors, Note]
