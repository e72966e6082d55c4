"""Entities in one SQLite file."""
