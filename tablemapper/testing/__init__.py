"""For the tests of those who use the library; nothing here is imported by the library itself.

- `clock`: a clock that stands still, for the timestamps of a store and for UUIDs.
- `stores`: empty stores, by a clock of the test, which are checked at its end.
- `plugin`: fixtures of pytest: ``pytest_plugins = ["tablemapper.testing.plugin"]``.
"""
