"""How the sweep of step sizes on sparse rows chooses."""

from typing import Any

import pytest

pytest.importorskip("sklearn", reason="scikit-learn (extra test) is not installed")

from bench import sparse_defaults
from bench.sparse_defaults import ALPHAS, LOSSES, choose


def records(aucs: dict[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """Of two sets, the same with both losses; scikit-learn's is 0.7 on each."""
    peer = f"alpha={ALPHAS[0]:g}"
    return [
        {"set": name, "seed": 0, "loss": loss, "who": who, "setting": setting, "auc": auc}
        for loss in LOSSES
        for who, setting, both in (
            ("SGDClassifier", peer, (0.7, 0.7)),
            *(("leashed", arm, both) for arm, both in aucs.items()),
        )
        for name, auc in zip("ab", both, strict=True)
    ]


def test_what_falls_short_on_one_set_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"steady": (0.71, 0.71), "uneven": (0.90, 0.69), "worse": (0.70, 0.70)}
    monkeypatch.setattr(sparse_defaults, "STEPS", dict.fromkeys(found))
    assert choose(records(found), "ab") == "steady"
    assert choose(records({**found, "uneven": (0.90, 0.696)}), "ab") == "uneven"
    monkeypatch.setattr(sparse_defaults, "STEPS", {"uneven": None})
    assert choose(records({"uneven": (0.90, 0.69)}), "ab") is None
