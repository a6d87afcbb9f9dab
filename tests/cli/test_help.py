"""``leashed train --help``: in groups, with the options of the model that is named."""

from __future__ import annotations

import re

import pytest

from leashed import cli
from leashed.training.job import GROUPS, Job
from leashed.training.problems import clicks, sparse

GENERAL = [
    "what is trained, and on what",
    "threads and batches",
    "update rule",
    "stop rules",
    "while it goes on",
    "what is kept",
    "for research",
]
SHAPE = ["--dim", "--hidden", "--bottom"]
CLICKS = [
    *SHAPE,
    "--rows",
    "--table-mib",
    "--table-share",
    "--table-weight-decay",
    "--days",
    "--label",
]
CLICKS += ["--target", "--gauc", "--click-share"]
SPARSE = ["--format", "--hash-bits", "--factors", "--l2", "--zero-based"]
FILES = ["--schema", "--stream", "--shuffle", "--test", "--bad"]


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The parts of the help at 80 columns, by their titles."""
    monkeypatch.setenv("COLUMNS", "80")

    def helped(*words: str) -> dict[str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main(["train", *words])
        assert end.value.code == 0
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80
        found = re.split(r"^(\S.*):\n", text.partition("\noptions:\n")[2], flags=re.MULTILINE)
        return {"all": text, **dict(zip(found[1::2], found[2::2], strict=True))}

    return helped


def options(text: str) -> list[str]:
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)


@pytest.mark.parametrize("model", [None, "mlp", "dlrm", "din", "fm", "logistic_regression"])
def test_it_tells_each_option_once_in_groups_with_research_last(model, helped):
    found = helped(*([] if model is None else ["--model", model]), "--help")
    told = options(found["all"])
    assert len(told) == len(set(told))
    assert [name for name in found if name in GENERAL] == GENERAL
    last = found["for research"].partition("\nOther models")[0]
    assert list(found)[-1] == "for research"
    assert options(last) == [
        *("--discipline", "--mode", "--swap", "--staleness", "--stage-aware"),
        *("--counting", "--record"),
    ]


def test_it_has_the_options_of_the_model_that_is_named(helped):
    def told(*words):
        return set(options(helped(*words)["all"]))

    general = told("--help")
    assert not general & {*CLICKS, *SPARSE, *FILES}
    assert general == told("--model", "cnn", "--help")
    assert told("--model", "mlp", "--help") - general == {"--hidden"}
    of_clicks, of_sparse = told("--model", "dlrm", "--help"), told("--help", "--model=fm")
    assert of_clicks - general == {
        *CLICKS,
        *FILES,
        "--admit-after",
        "--evict",
        "--dropout",
        "--norm",
        "--target",
    }
    assert of_sparse - general == {*SPARSE, *FILES, "--features", "--target"}
    linear = told("--help", "--model=linear_svm")
    assert linear == of_sparse - {"--target"}


def test_it_fits_a_few_screens(helped):
    assert helped("--help")["all"].count("\n") < 150


def test_it_says_whose_options_are_not_told(helped):
    told = " ".join(helped("--model", "fm", "--help")["all"].split())
    assert f"--model dlrm --help those of {', '.join(clicks.MODELS)}" in told
    assert f"those of {', '.join(sparse.MODELS)}" not in told


def test_every_option_of_a_job_has_a_group():
    fields = [item.metadata for item in Job.__dataclass_fields__.values() if item.metadata]
    assert {about["group"] for about in fields if about["command"]} == set(GROUPS)


def test_an_option_of_another_kind_is_refused_by_name(capsys):
    assert cli.main(["train", "--rows", "5"]) == 2
    assert "--rows goes with --model dlrm" in capsys.readouterr().err


def test_no_progress_is_silent(capsys):
    run = ["train", "--seconds", "0.2", "--threads", "1"]
    assert cli.main([*run, "--no-progress"]) == 0
    assert capsys.readouterr().err == ""
