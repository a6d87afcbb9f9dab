import json
import signal
import subprocess
import sys
import time

import pytest

import leashed as lsh
from leashed import bench_command, cli, runs
from leashed.result import TrainResult


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Synthetic digits, few of them."""
    monkeypatch.setattr(
        "leashed.arguments.datasets.synthetic_digits",
        lambda digits=lsh.datasets.synthetic_digits: digits(n=256, seed=0),
    )


def test_train_prints_a_summary(capsys):
    assert cli.main(["train", "--updates", "20", "--batch-size", "16"]) == 0
    out = capsys.readouterr().out
    for word in ("mlp, d = 134,794", "LSH_ps∞", "stopped (updates)", "examples/s"):
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        (["--discipline", "sequential"], "SEQ"),
        (["--discipline", "synchronous", "--threads", "2"], "SYNC"),
        (["--discipline", "locked", "--threads", "2"], "ASYNC"),
        (["--discipline", "hogwild", "--threads", "2"], "HOG"),
        (["--discipline", "hogwild-direct", "--threads", "2"], "HOG_direct"),
        (["--persistence", "3", "--threads", "2"], "LSH_ps3"),
        (["--discipline", "leashed", "--persistence", "inf"], "LSH_ps∞"),
    ],
)
def test_every_discipline_has_a_name(arguments, label, capsys):
    assert cli.main(["train", "--updates", "5", "--batch-size", "8", *arguments]) == 0
    assert label in capsys.readouterr().out


@pytest.mark.parametrize("model", ["cnn", "lenet"])
def test_every_model_has_a_name(model, capsys):
    assert cli.main(["train", "--model", model, "--updates", "2", "--batch-size", "8"]) == 0
    assert model in capsys.readouterr().out


def test_json_lines_are_json_and_end_with_the_result(capsys):
    arguments = ["--updates", "200", "--batch-size", "16", "--evaluate-every", "0.01"]
    assert cli.main(["train", "--json-lines", *arguments]) == 0
    captured = capsys.readouterr()
    *evaluations, result = captured.out.splitlines()
    assert {"seconds", "loss", "eps", "mean_staleness"} <= set(json.loads(evaluations[0]))
    assert TrainResult.from_json(result).total_updates == 200
    assert "stopped (updates)" in captured.err


def test_results_and_models_are_written(tmp_path, capsys):
    result, model = tmp_path / "result.json", tmp_path / "model.safetensors"
    arguments = ["--updates", "5", "--batch-size", "8", "--output", str(result)]
    assert cli.main(["train", *arguments, "--save", str(model)]) == 0
    capsys.readouterr()
    assert runs.read(result)[0].algorithm == "LSH_ps∞"
    assert lsh.load(model)[0].dimension == 134_794


def test_a_run_that_diverges_has_status_1(capsys):
    assert cli.main(["train", "--loss-fraction", "0.01", "--updates", "3"]) == 1
    assert "diverged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["train", "--threads", "0"], "threads must be at least 1"),
        (["train", "--threads", "two"], "argument --threads"),
        (["train", "--lr", "-1"], "lr must"),
        (["train", "--lr", "nan"], "lr must"),
        (["train", "--persistence", "some"], "neither inf nor"),
        (["train", "--persistence", "-1"], "persistence must"),
        (["train", "--discipline", "hogwild", "--persistence", "1"], "goes with leashed"),
        (["train", "--discipline", "sequential", "--threads", "2"], "threads must be 1"),
        (["train", "--discipline", "other"], "invalid choice"),
        (["train", "--data", "/no/such/folder"], "/no/such/folder"),
        (["train", "--epochs", "0"], "epochs must"),
        (["train", "--updates", "5", "--output", "/no/such/folder/x"], "/no/such/folder/x"),
        (["bench", "scaling", "--threads", "1,x"], "separated by commas"),
        (["bench", "scaling", "--model", "rnn"], "model must be among"),
        (["bench", "scaling", "--epsilon", "2"], "epsilon must"),
        (["bench", "scaling", "--preset", "S4", "--max-threads", "2"], "cuts all"),
        (["report", "/no/such/file"], "/no/such/file: No such file"),
        (["bogus"], "invalid choice"),
        ([], "required"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments, complaint, capsys):
    try:
        status = cli.main(arguments)
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()
    assert status == 2
    assert captured.err.startswith("leashed: error: ")
    assert captured.err.count("\n") == 1
    assert complaint in captured.err


def test_scaling_compares_all_algorithms_and_report_draws_them(tmp_path, capsys):
    output, page = tmp_path / "runs.jsonl", tmp_path / "report.html"
    plan = ["--threads", "1,2,64", "--max-threads", "2", "--repeats", "1", "--batch-size", "16"]
    plan += ["--epsilon", "0.9,0.8", "--init", "he", "--seconds", "20"]
    assert cli.main(["bench", "scaling", *plan, "--output", str(output)]) == 0
    captured = capsys.readouterr()
    for algorithm in runs.ALGORITHMS:
        assert algorithm in captured.out
    for word in ("s to 90%", "n*_γ", "cores", "diverged", "vectors"):
        assert word in captured.out
    assert "left out: m = 64" in captured.err
    assert len(runs.read(output)) == 1 + 6 * 2

    assert cli.main(["report", str(output), "-o", str(page)]) == 0
    captured = capsys.readouterr()
    assert "not drawn: Figure 7" in captured.err
    assert page.read_text(encoding="utf-8").count("<img") >= 8


def test_scaling_prints_json_lines(capsys):
    plan = ["--threads", "1", "--repeats", "1", "--batch-size", "16", "--epsilon", "0.99"]
    assert cli.main(["bench", "scaling", *plan, "--json-lines"]) == 0
    captured = capsys.readouterr()
    assert len([TrainResult.from_json(line) for line in captured.out.splitlines()]) == 7
    assert "LSH_ps0" in captured.err


def test_arguments_override_a_preset():
    options = cli._parser().parse_args(
        ["bench", "scaling", "--preset", "S2", "--repeats", "2", "--lr", "0.1,0.2"]
    )
    plan = bench_command._plan(options)
    assert (plan.threads, plan.repeats, plan.lr) == ((16,), 2, (0.1, 0.2))


def test_a_report_needs_matplotlib_and_says_so():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from leashed.cli import main; sys.exit(main(['report', 'runs.jsonl']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "pip install leashed[plot]" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_version_and_help(capsys):
    for arguments in (["--version"], ["--help"], ["train", "--help"], ["bench", "scaling", "-h"]):
        with pytest.raises(SystemExit) as end:
            cli.main(arguments)
        assert end.value.code == 0
    assert lsh.__version__ in capsys.readouterr().out


def interrupt_after_the_first_line(*arguments):
    """The lines printed until, and after, Ctrl-C at the first one; and standard error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "leashed", *arguments, "--json-lines"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = process.stdout.readline()
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    return [first, *out.splitlines()], err


def test_ctrl_c_keeps_the_state_reached():
    lines, err = interrupt_after_the_first_line("train", "--seconds", "60")
    assert TrainResult.from_json(lines[-1]).reason == "interrupted"
    assert "stopped (interrupted)" in err


def test_ctrl_c_keeps_the_runs_that_ended():
    plan = ["--epsilon", "1e-9", "--seconds", "1", "--threads", "2", "--batch-size", "16"]
    lines, err = interrupt_after_the_first_line("bench", "scaling", *plan)
    assert TrainResult.from_json(lines[0]).outcome == "diverged"
    assert "runs per row" in err
