"""Tests of the picture of a model."""
