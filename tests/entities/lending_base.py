"""A base in a module of its own, whose annotations are text."""

from __future__ import annotations

from datetime import datetime

import tablemapper as tm


class Noted(tm.Entity):
    at: tm.Field[datetime]

    key = tm.Key[datetime](partition="{at}")
    by_time = tm.Index[datetime](partition="{at}")
