"""Units after a number: split off, and compared where both answers name one that is known."""

from __future__ import annotations

import re

from gem_core.grading.latex import TEXT_CLOSE, TEXT_OPEN, strip_marks

_ALIASES: dict[str, tuple[str, ...]] = {
    "mm": ("millimeter", "millimetre"), "cm": ("centimeter", "centimetre"), "m": ("meter", "metre"),
    "km": ("kilometer", "kilometre"), "in": ("inch", "inches", "inche"), "ft": ("foot", "feet"), "yd": ("yard",),
    "mi": ("mile",), "mg": ("milligram",), "g": ("gram", "gm", "gramme"), "kg": ("kilogram", "kilo"),
    "lb": ("pound",), "oz": ("ounce",), "t": ("ton", "tonne"), "ms": ("millisecond",), "s": ("second", "sec"),
    "min": ("minute",), "h": ("hour", "hr"), "day": (), "week": ("wk",), "month": (), "year": ("yr",),
    "ml": ("milliliter", "millilitre"), "l": ("liter", "litre"), "gal": ("gallon",), "n": ("newton",),
    "j": ("joule",), "kj": ("kilojoule",), "w": ("watt",), "kw": ("kilowatt",), "v": ("volt",), "a": ("ampere", "amp"),
    "ohm": (), "pa": ("pascal",), "hz": ("hertz",), "k": ("kelvin",), "mol": ("mole",), "cent": (), "dollar": ("usd",),
    "degree": ("deg",), "radian": ("rad",), "acre": (), "dozen": (),
}  # fmt: skip
_CANONICAL = {name: unit for unit, names in _ALIASES.items() for name in (unit, *names)}
_QUOTIENTS = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "kmph": "km/h"}
_POWER = re.compile(r"\^\s?\{?\s?([23])\s?\}?$")
_MARKED = re.compile(
    rf"^(?P<value>.*[\d)}}%a-z])\s*(?P<unit>(?:\\cdot\s*)?{TEXT_OPEN}[^{TEXT_CLOSE}]*{TEXT_CLOSE}"
    rf"(?:\s?\^\s?\{{?\s?\d\s?\}}?)?(?:\s?/\s?{TEXT_OPEN}[^{TEXT_CLOSE}]*{TEXT_CLOSE}(?:\s?\^\s?\{{?\s?\d\s?\}}?)?)?)$",
    re.DOTALL,
)
_BARE = re.compile(
    r"^(?P<value>.*[\d)}%])(?P<blank>\s*)"
    r"(?P<unit>[a-zA-Z]{2,}\.?(?:(?: per | ?/ ?| )[a-zA-Z]+){0,3}(?:\s?\^\s?\{?\s?[23]\s?\}?)?)$",
    re.DOTALL,
)
_DEGREE = re.compile(r"^(?P<value>.*?)\s*\\degree\s*(?P<scale>[CFK]?)$", re.DOTALL)


def split_unit(text: str) -> tuple[str, str]:
    """Splits ``5 \\text{ cm}^2`` into ``("5", "cm^2")``; the unit is "" where there is none, or unknown words.

    Bare letters count as a unit only after a blank or where they are a known one: ``2ab`` is a product.
    """
    if m := _DEGREE.match(text):
        return m["value"].strip(), f"degree {m['scale']}".strip()
    if m := _MARKED.match(text):
        return m["value"].strip(), _canonical(strip_marks(m["unit"].replace("\\cdot", "")))
    if (m := _BARE.match(text)) and "\\" not in m["unit"]:
        unit = _canonical(m["unit"])
        known = _POWER.sub("", unit) in _CANONICAL
        if known or (m["blank"] and not re.fullmatch(r"[a-zA-Z]{2}", m["unit"])):
            return m["value"].strip(), unit
    return text, ""


def same_unit(a: str, b: str) -> bool:
    """False only where both are known units and differ: a missing or an unknown one is not held against an answer."""
    if not a or not b or a == b:
        return True
    return not (_known(a) and _known(b))


def _known(unit: str) -> bool:
    return all(_POWER.sub("", p).strip() in _ALIASES for p in unit.removesuffix(" C").removesuffix(" F").split("/"))


def _canonical(unit: str) -> str:
    unit = unit.strip(" .").lower().replace(" per ", "/")
    return _QUOTIENTS.get(unit) or "/".join(_one(p.strip()) for p in unit.split("/"))


def _one(unit: str) -> str:
    power = ""
    if m := _POWER.search(unit):
        power, unit = f"^{m[1]}", unit[: m.start()].strip()
    for lead, exponent in (("square ", "^2"), ("sq ", "^2"), ("sq. ", "^2"), ("cubic ", "^3"), ("cu ", "^3")):
        if unit.startswith(lead):
            power, unit = exponent, unit[len(lead) :]
    for candidate in (unit, unit.removesuffix("."), unit.removesuffix("s")):
        if candidate in _CANONICAL:
            return _CANONICAL[candidate] + power
    return unit + power
