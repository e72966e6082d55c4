"""The store is a dict whose indexes and aggregates keep themselves, whatever happens to it."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from .machine import Machine

TestStates = Machine.TestCase
TestStates.settings = settings(
    max_examples=int(os.environ.get("STATE_EXAMPLES", "40")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
