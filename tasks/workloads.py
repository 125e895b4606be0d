"""Workloads in words, as prompts show them: each one of a few, the ranges and the extremes of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FEW = 12
"""Up to so many workloads are shown one by one."""
_CHOICES = 8
"""Values of a dimension that are shown one by one."""
_WIDTH = 40

Value = bool | int | float | str
Values = Mapping[str, Value]
"""What a workload is made of: its dimensions, params and arguments by name."""


def listed(loads: Sequence[tuple[str, Values]]) -> str:
    """Lines about workloads, given by name and values: their number does not grow with that of the workloads."""
    if len(loads) <= FEW:
        return "\n".join(_line(name, values) for name, values in loads)
    keys = list(dict.fromkeys(key for _, values in loads for key in values))
    ranges = [f"- {key}{_range([values[key] for _, values in loads if key in values])}" for key in keys]
    extremes = [f"- {_written(loads[index])}" for index in _extremes([values for _, values in loads], keys)]
    found = ["Where one of these is smallest or largest:", *extremes] if extremes else []
    return "\n".join([f"{len(loads)} workloads, made of", *ranges, *found])


def written(values: Values) -> str:
    """A workload's values in one line."""
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def _line(name: str, values: Values) -> str:
    return f"- {name}: {written(values)}" if values else f"- {name}"


def _written(load: tuple[str, Values]) -> str:
    name, values = load
    return f"{name}: {written({key: _short(value) for key, value in values.items()})}"


def _short(value: Value) -> str:
    text = str(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _range(values: list[Value]) -> str:
    """The values that a key takes: the one, the few, or the least and the largest."""
    different = sorted(set(values), key=lambda value: (isinstance(value, str), value if _is_number(value) else 0))
    if len(different) == 1:
        return f" = {_short(different[0])} in all"
    if len(different) <= _CHOICES:
        return f": {', '.join(map(_short, different))}"
    if all(map(_is_number, different)):
        return f": {len(different)} values from {different[0]} to {different[-1]}"
    return f": {len(different)} different values"


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _extremes(loads: list[Values], keys: list[str]) -> list[int]:
    """Where each numeric value that varies is least and largest, the first FEW of these workloads."""
    found: list[int] = []
    for key in keys:
        sizes = {index: value for index, values in enumerate(loads) if _is_number(value := values.get(key, ""))}
        if len(set(sizes.values())) > 1:
            found += [min(sizes, key=lambda at: (sizes[at], at)), max(sizes, key=lambda at: (sizes[at], -at))]
    return list(dict.fromkeys(found))[:FEW]
