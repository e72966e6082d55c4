"""Generated sources: compiled once, for all that are equal, and shown as long as a function of them lives."""

from __future__ import annotations

import gc
import linecache

from tablemapper import codegen
from tablemapper.codegen import compile_functions

SOURCE = "def add(n):\n    return [n + m for m in more]\n"


def test_equal_sources_are_compiled_once_and_keep_their_own_globals_and_code() -> None:
    before = codegen._compiled.cache_info().misses
    first, second = [compile_functions("Equal.add", SOURCE, {"more": [number]})["add"] for number in (1, 2)]
    assert codegen._compiled.cache_info().misses == before + 1
    assert (first(1), second(1)) == ([2], [3])
    assert first.__code__ is not second.__code__
    assert first.__code__.co_filename == second.__code__.co_filename
    other = compile_functions("Other.add", SOURCE, {"more": [1]})["add"]
    assert "Other.add" in other.__code__.co_filename


def test_a_source_is_shown_as_long_as_a_function_of_it_lives() -> None:
    functions = [compile_functions("Shown.add", SOURCE, {"more": [number]})["add"] for number in range(2)]
    filename = functions[0].__code__.co_filename
    codegen._compiled.cache_clear()
    functions.pop()
    assert linecache.getline(filename, 2) == "    return [n + m for m in more]\n"
    functions.clear()
    gc.collect()
    assert filename not in linecache.cache
