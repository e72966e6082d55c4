"""Lets the API reference show ``get = awaited(Store.get)`` as the method that it is, with the signature of the other."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Awaited(griffe.Extension):
    """Replaces such attributes once the package is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for module in pkg["aio"].modules.values():
            for cls in module.classes.values():
                for attribute in list(cls.attributes.values()):
                    verb = re.fullmatch(
                        r"awaited\((\w+)(?:\[\w+\])?\.(\w+)(?:, \w+=True)?\)",
                        str(attribute.value),
                    )
                    if verb is not None:
                        owner = pkg.modules_collection[module.resolve(verb[1])]
                        cls.set_member(
                            attribute.name, _method(attribute, owner.all_members[verb[2]])
                        )


def _method(attribute: griffe.Attribute, verb: griffe.Function) -> griffe.Function:
    method = griffe.Function(
        attribute.name,
        lineno=attribute.lineno,
        endlineno=attribute.endlineno,
        parameters=verb.parameters,
        returns=verb.returns,
        docstring=verb.docstring,
    )
    method.labels.add("async")
    return method
