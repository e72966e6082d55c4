"""A place on the earth, as GeoJSON."""

from __future__ import annotations

from typing import Any

from ..errors import safe_repr
from .scalars import SCALARS, ValueFault


class GeoPoint:
    """A place on the earth, in degrees. It is stored as GeoJSON, which puts the longitude first."""

    __slots__ = ("latitude", "longitude")
    latitude: float
    longitude: float

    def __init__(self, latitude: float, longitude: float) -> None:
        for name, value, most in (("latitude", latitude, 90), ("longitude", longitude, 180)):
            number = SCALARS[float].check(value)
            if not -most <= number <= most:
                raise ValueFault(f"a {name} is between -{most} and {most}, not {safe_repr(value)}")
            object.__setattr__(self, name, number)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a GeoPoint cannot be changed: make a new one with another {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a GeoPoint cannot be changed")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GeoPoint):
            return NotImplemented
        return (self.latitude, self.longitude) == (other.latitude, other.longitude)

    def __hash__(self) -> int:
        return hash((self.latitude, self.longitude))

    def __repr__(self) -> str:
        return f"GeoPoint(latitude={self.latitude!r}, longitude={self.longitude!r})"

    def __replace__(self, **changes: float) -> GeoPoint:
        return GeoPoint(**{"latitude": self.latitude, "longitude": self.longitude} | changes)

    def __reduce__(self) -> tuple[Any, ...]:
        return GeoPoint, (self.latitude, self.longitude)
