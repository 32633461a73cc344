"""Numbers with their units, as people read them."""

import pytest

from clustertop.quantity import quantity


@pytest.mark.parametrize(("value", "unit", "said"), [
    (-0.000004, "A/s", "0 A/s"), (0.0, "A/s", "0 A/s"), (-0.00042, "A/s", "-0.0004 A/s"), (0.25, "A/s", "0.25 A/s"),
    (None, "A/s", "-"), (float("nan"), "A", "-"), (16.0, "lanes", "x16"), (0.35, "ratio", "35 %"), (0.042, "ratio", "4.2 %"),
    (0.0, "ratio", "0 %"), (7555.0, "W", "7555 W"), (15_200.0, "W", "15.2 kW"), (22.3, "A", "22 A"), (0.3, "A", "0.3 A"),
])
def test_a_value_with_its_unit(value: float | None, unit: str, said: str) -> None:
    assert quantity(value, unit) == said
