"""Booleans of a frame, and the words that they are written as in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import leashed as lsh
from leashed.stream import Hashed, Label, Number

COLUMNS = {"clicked": Label(), "member": Number(), "city": Hashed(buckets=20)}


@pytest.mark.parametrize(("yes", "no"), [("True", "False"), ("true", "false"), ("1", "0")])
def test_of_a_file_they_are_numbers_and_labels(yes: str, no: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(f"clicked,member,city\n{yes},{no},a\n{no},{yes},b\n")
    rows = lsh.stream.csv(file, COLUMNS).read()
    np.testing.assert_array_equal(rows.x[:, 0], [0, 1])
    np.testing.assert_array_equal(rows.y, [1, 0])


@pytest.mark.parametrize("word", ["TRUE?", "Trueish", "yes", "T"])
def test_other_words_are_bad_lines(word: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(f"clicked,member,city\n0,{word},a\n")
    with pytest.raises(ValueError, match=r"rows\.csv: line 2"):
        lsh.stream.csv(file, COLUMNS).read()


def test_a_frame_and_its_file_are_predicted_the_same(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    draw = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "clicked": draw.integers(0, 2, 200),
            "member": draw.integers(0, 2, 200).astype(bool),
            "city": draw.choice(["a", "b", "c"], 200),
        }
    )
    trained = lsh.train(lsh.models.dlrm(dim=4), frame, label="clicked", threads=1).model
    frame.to_csv(tmp_path / "rows.csv", index=False)
    np.testing.assert_array_equal(trained.predict(tmp_path / "rows.csv"), trained.predict(frame))
