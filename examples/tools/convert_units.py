"""Convert units: arguments as JSON on standard input, the answer as JSON on standard output."""

import json
import sys

FACTORS = {
    "length": {
        "mm": 0.001,
        "cm": 0.01,
        "m": 1,
        "km": 1000,
        "inch": 0.0254,
        "foot": 0.3048,
        "yard": 0.9144,
        "mile": 1609.344,
    },
    "mass": {"g": 0.001, "kg": 1, "ounce": 0.028349523125, "pound": 0.45359237},
}
TO_KELVIN = {
    "celsius": lambda value: value + 273.15,
    "fahrenheit": lambda value: (value + 459.67) * 5 / 9,
    "kelvin": lambda value: value,
}
FROM_KELVIN = {
    "celsius": lambda value: value - 273.15,
    "fahrenheit": lambda value: value * 9 / 5 - 459.67,
    "kelvin": lambda value: value,
}


def convert(value, source, target):
    if source in TO_KELVIN and target in FROM_KELVIN:
        return FROM_KELVIN[target](TO_KELVIN[source](value))
    for units in FACTORS.values():
        if source in units and target in units:
            return value * units[source] / units[target]
    known = sorted([*TO_KELVIN, *(unit for units in FACTORS.values() for unit in units)])
    sys.exit(f"cannot convert {source!r} into {target!r}; known units: {', '.join(known)}")


call = json.load(sys.stdin)
answer = convert(call["value"], call["from"].lower(), call["to"].lower())
sys.stdout.write(json.dumps({"value": round(answer, 10), "unit": call["to"].lower()}) + "\n")
