"""The store is a dict whose indexes and aggregates keep themselves, whatever happens to it."""

from __future__ import annotations

from hypothesis import settings

from ..conftest import examples
from ..machine import Machine, RandomMachine

TestStates = Machine.TestCase
TestStates.settings = settings(examples(12, long=40), stateful_step_count=25)
TestRandomStates = RandomMachine.TestCase
TestRandomStates.settings = settings(examples(12, long=40), stateful_step_count=25)
