"""Entities in one SQLite file."""

from . import memory as memory  # File.open knows ":memory:" from here
