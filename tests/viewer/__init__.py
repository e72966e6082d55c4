"""The inspector."""
