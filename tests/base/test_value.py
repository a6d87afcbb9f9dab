"""Values have what ``@dataclass(frozen=True)`` gives, whether they have fields of their own or not."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass, field

import pytest

import leashed as lsh
from leashed.base.value import Value
from leashed.models.layers import Dense, ReLU

OF_EACH = (
    (lsh.Sequential(), lsh.Locked(), "Sequential()"),
    (lsh.Leashed(3), lsh.Leashed(4), "Leashed(persistence=3)"),
    (lsh.modes.ASP(), lsh.modes.ASP(term=2.0), "ASP()"),
    (lsh.modes.SSP(3), lsh.modes.SSP(4), "SSP(s=3)"),
    (lsh.Nesterov(0.5), lsh.Momentum(0.5), "Nesterov(lr=0.5, weight_decay=0.0, "),
    (lsh.SWAP(lsh.Adam(0.5), 5), lsh.SWAP(lsh.Adam(0.5), 6), "SWAP(rule=Adam(lr=0.5, "),
    (Dense(3), Dense(4), "Dense(outputs=3, bias=True)"),
    (ReLU(), Dense(3), "ReLU()"),
)


@pytest.mark.parametrize(("value", "other", "shown"), OF_EACH, ids=lambda one: str(one)[:20])
def test_a_value_is_equal_hashed_shown_and_frozen(value, other, shown):
    same = pickle.loads(pickle.dumps(value))
    assert same == copy.deepcopy(value) == dataclasses.replace(value) == value
    assert hash(same) == hash(value)
    assert value != other
    assert value != shown
    assert len({value, same, other}) == 2
    assert repr(value).startswith(shown)
    for name in ("term", "lr", "unknown"):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field"):
            setattr(value, name, 1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field"):
        del value.unknown


@pytest.mark.parametrize(
    "kind",
    [
        lsh.Nesterov, lsh.modes.Sync, lsh.modes.ASP, lsh.Sequential, lsh.Locked, lsh.models.ReLU,
        lsh.models.DataNorm, lsh.tables.RowwiseAdagrad,
    ],
)  # fmt: skip
def test_an_unknown_argument_is_told_by_the_class_that_was_called(kind):
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__\(\) got an unexpected"):
        kind(unknown=1)


def test_fields_that_are_not_compared_or_shown_are_not():
    @dataclass(frozen=True, eq=False, repr=False)
    class Noted(Value):
        x: int
        note: str = field(default="", compare=False, repr=False)

    assert Noted(1, "a") == Noted(1, "b")
    assert hash(Noted(1, "a")) == hash(Noted(1, "b"))
    assert repr(Noted(1, "a")).endswith("Noted(x=1)")
