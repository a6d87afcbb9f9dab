import gzip
import json
import signal
import subprocess
import sys
import time

import pytest

import leashed as lsh
from leashed import cli
from leashed.cli import scaling
from leashed.studies import runs
from leashed.studies import scaling as studies
from leashed.training.result import TrainResult


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Synthetic digits, few of them."""
    monkeypatch.setattr(
        "leashed.datasets.synthetic_digits",
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
        (["--discipline", "hogwild:copy=false", "--threads", "2"], "HOG_direct"),
        (["--discipline", "leashed:persistence=3", "--threads", "2"], "LSH_ps3"),
        (["--discipline", "leashed:persistence=inf"], "LSH_ps∞"),
    ],
)
def test_every_discipline_has_a_name(arguments, label, capsys):
    assert cli.main(["train", "--updates", "5", "--batch-size", "8", *arguments]) == 0
    assert label in capsys.readouterr().out


def test_the_leases_of_a_mode_have_a_term(tmp_path):
    out = tmp_path / "result.json"
    arguments = ["--mode", "asp", "--updates", "5", "--batch-size", "8", "--threads", "2"]
    assert cli.main(["train", *arguments, "--term", "30", "--output", str(out)]) == 0
    assert json.loads(out.read_text())["config"]["mode"]["term_ns"] == 30 * 10**9


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


def test_a_run_without_its_loss_has_status_1(capsys):
    assert cli.main(["train", "--loss-fraction", "0.01", "--updates", "3"]) == 1
    assert "unfinished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["train", "--threads", "0"], "threads must be at least 1"),
        (["train", "--threads", "two"], "must be a whole number, or \"auto\", got 'two'"),
        (["train", "--mode", "asp", "--discipline", "leashed"], "give one of the two"),
        (["train", "--lr", "-1"], "lr must"),
        (["train", "--lr", "nan"], "lr must"),
        (
            ["train", "--discipline", "leashed:persistence=some"],
            "persistence is 'some', neither a number",
        ),
        (["train", "--discipline", "leashed:persistence=-1"], "persistence must"),
        (
            ["train", "--discipline", "hogwild:persistence=1"],
            "hogwild has no 'persistence'; it has copy",
        ),
        (
            ["train", "--discipline", "locked", "--mode", "asp"],
            "discipline is not for runs with a mode",
        ),
        (["train", "--discipline", "sequential", "--threads", "2"], "threads must be 1"),
        (
            ["train", "--discipline", "other"],
            "--discipline 'other' is unknown; choose one of sequential",
        ),
        (["train", "--term", "3"], "--term goes with --mode"),
        (["train", "--mode", "asp:term=0"], "term must be greater than 0"),
        (["train", "--data", "/no/such/folder"], "/no/such/folder"),
        (["train", "--epochs", "0"], "epochs must"),
        (["train", "--updates", "5", "--output", "/no/such/folder/x"], "/no/such/folder/x"),
        (["bench", "scaling", "--threads", "1,x"], "separated by commas"),
        (["bench", "scaling", "--model", "rnn"], "model must be among"),
        (["bench", "scaling", "--epsilon", "2"], "epsilon must"),
        (["bench", "scaling", "--preset", "S4", "--max-threads", "2"], "cuts all"),
        (["bench", "scaling", "--short"], "--short goes with --preset"),
        (["bench", "scaling", "--resume"], "--resume goes with --output"),
        (["bench", "scaling", "--minutes", "0"], "minutes must"),
        (["bench", "scaling", "--pixels", "256"], "invalid choice"),
        (["bench", "scaling", "--algorithm", "LSH"], "'LSH' is unknown; choose one of sequential"),
        (["bench", "scaling", "--algorithm", "leashed:persistence=7"], "algorithm must be among"),
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

    assert cli.main(["report", str(output), "-o", str(page), "--threads", "2"]) == 0
    captured = capsys.readouterr()
    assert "not drawn: Figure 7" in captured.err
    assert "no two step sizes η at 2 threads" in captured.err
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
    plan = scaling._plan(options)
    assert (plan.threads, plan.repeats, plan.lr) == ((16,), 2, (0.1, 0.2))


def test_the_short_form_is_a_presets_own():
    options = cli._parser().parse_args(
        ["bench", "scaling", "--preset", "S1", "--short", "--algorithm", "sequential,leashed"]
    )
    plan = scaling._plan(options)
    assert (plan.preset, plan.short, plan.lr) == ("S1", True, studies.SHORT["S1"].lr)
    assert plan.algorithm == ("SEQ", "LSH_ps∞")


# Runs that end at once, each of them.
QUICK = ["bench", "scaling", "--threads", "1", "--batch-size", "16", "--epsilon", "0.99"]
QUICK += ["--algorithm", "sequential,hogwild", "--seconds", "20"]


def test_what_runs_and_for_how_long_is_told_before(capsys):
    preset = ["--preset", "S2", "--short", "--repeats", "1", "--seconds", "30", "--init", "he"]
    assert cli.main([*QUICK, *preset, "--pixels", "1"]) == 0
    captured = capsys.readouterr()
    told = captured.err.splitlines()
    departures = "without SYNC, ASYNC, LSH_ps∞, LSH_ps1, LSH_ps0; without m = 16; with m = 1; "
    assert told[0].startswith(f"preset S2, short form ({departures}")
    assert "256 training examples, pixels 0…1, batch 16, initialisation he, η = 0.005" in told[1]
    assert told[2] == "2 runs, of at most 30 s each: 1.00 minutes at most"
    assert departures in captured.out
    assert "256 training examples, pixels 0…1; initialisation: he; η: 0.005" in captured.out


def test_a_file_that_is_there_is_neither_overwritten_nor_added_to(tmp_path, capsys):
    output = tmp_path / "runs.jsonl"
    output.write_text("something\n")
    assert cli.main([*QUICK, "--output", str(output)]) == 2
    assert "runs.jsonl has results already: --resume adds" in capsys.readouterr().err
    assert output.read_text() == "something\n"


def test_a_report_is_drawn_from_packed_runs_too_but_nothing_is_appended_to_them(tmp_path, capsys):
    output, page = tmp_path / "runs.jsonl", tmp_path / "report.html"
    sweep = [*QUICK, "--repeats", "1"]
    assert cli.main([*sweep, "--output", str(output)]) == 0
    packed = gzip.compress(output.read_bytes(), mtime=0)
    capsys.readouterr()
    for name in ("runs.jsonl.gz", "packed.jsonl"):
        (tmp_path / name).write_bytes(packed)
        assert cli.main(["report", str(tmp_path / name), "-o", str(page)]) == 0
        assert f"{page}: 2 runs" in capsys.readouterr().out
        assert cli.main([*sweep, "--output", str(tmp_path / name), "--resume"]) == 2
        error = capsys.readouterr().err
        assert "file without .gz" in error if name.endswith(".gz") else "unpack it first" in error
        assert (tmp_path / name).read_bytes() == packed
    assert cli.main([*sweep, "--output", str(tmp_path / "new.jsonl.gz")]) == 2
    assert "name a file without .gz" in capsys.readouterr().err
    assert not (tmp_path / "new.jsonl.gz").exists()


def test_a_sweep_in_slices_is_the_whole_sweep(tmp_path, capsys):
    output = tmp_path / "runs.jsonl"
    sweep = [*QUICK, "--repeats", "2", "--output", str(output), "--resume"]
    slices = 0
    while (status := cli.main([*sweep, "--minutes", "1e-9"])) == 3:
        slices += 1
        captured = capsys.readouterr()
        assert f"{4 - slices} of 4 runs are left; the same command with --resume" in captured.err
        assert len(runs.read(output)) == slices
    assert (status, slices) == (0, 3)
    captured = capsys.readouterr()
    assert "1 runs left of 4" in captured.err
    assert "2 runs per row" in captured.out  # of the whole file
    settings = [studies.Setting.of(run) for run in runs.read(output)]
    assert settings == scaling._plan(cli._parser().parse_args(sweep)).settings()

    before = output.read_text(encoding="utf-8")
    assert cli.main(sweep) == 0
    assert output.read_text(encoding="utf-8") == before
    assert "2 runs per row" in capsys.readouterr().out


def test_a_line_that_was_cut_off_is_dropped_and_run_again(tmp_path, capsys):
    output = tmp_path / "runs.jsonl"
    sweep = [*QUICK, "--repeats", "1", "--output", str(output)]
    assert cli.main(sweep) == 0
    whole = output.read_bytes()
    first = whole.index(b"\n") + 1
    output.write_bytes(whole[: first + 100])
    capsys.readouterr()
    assert cli.main([*sweep, "--resume"]) == 0
    assert "its last line was not written to the end and is dropped" in capsys.readouterr().err
    assert output.read_bytes()[:first] == whole[:first]
    assert [run.algorithm for run in runs.read(output)] == ["SEQ", "HOG"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["--pixels", "255"], "pixels 1 there, 255 here"),
        (["--seconds", "10"], "seconds 20.0 there, 10.0 here"),
        (["--preset", "S2"], "preset None there, S2 here"),
    ],
)
def test_a_file_of_another_plan_is_refused(tmp_path, capsys, changes, complaint):
    output = tmp_path / "runs.jsonl"
    sweep = [*QUICK, "--repeats", "1", "--output", str(output)]
    assert cli.main(sweep) == 0
    before = output.read_bytes() + b"{"
    output.write_bytes(before)
    capsys.readouterr()
    assert cli.main([*sweep, "--resume", *changes]) == 2
    captured = capsys.readouterr()
    for part in (
        f"{output}: its runs were made under other conditions",
        complaint,
        "or another --output",
    ):
        assert part in captured.err
    assert output.read_bytes() == before


@pytest.mark.parametrize("model", ["mlp", "dlrm"])
@pytest.mark.parametrize(
    ("one", "other"),
    [("--checkpoint", "--save"), ("--save", "--output"), ("--record", "--report")],
)
def test_what_training_writes_has_a_place_each(one, other, model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("leashed.cli.train.train", lambda *_, **__: pytest.fail("it began"))
    arguments = ["train", "--model", model, one, "a", other, str(tmp_path / "a")]
    assert cli.main(arguments) == 2
    assert f"{other} {tmp_path / 'a'} is what {one} writes; name another" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "data", ["--data {}/rows.svm", "--data {}/r*.svm --stream", "--test {}/rows.svm"]
)
@pytest.mark.parametrize("output", ["--save", "--output"])
def test_what_training_reads_stays(data, output, tmp_path, capsys):
    rows = tmp_path / "rows.svm"
    rows.write_text("1 1:1\n0 2:1\n")
    arguments = ["train", "--model", "fm", *data.format(tmp_path).split(), output, str(rows)]
    assert cli.main(arguments) == 2
    assert f"{output} {rows} is what {data.split()[0]} reads" in capsys.readouterr().err
    assert rows.read_text() == "1 1:1\n0 2:1\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "runs.jsonl"],
        ["policies"],
        ["train", "--report", "page.html"],
        ["train", "--model", "dlrm", "--days", "{rows}", "--checkpoint", "run", "--report", "a"],
        ["bench", "contention", "--report", "page.html"],
        ["bench", "normalisation", "--report", "page.html"],
        ["bench", "shadowsync", "--figure5", "--virtual", "--plot", "figure.png"],
        ["bench", "shat", "--report", "page.html"],
        ["bench", "staleness", "--report", "page.html"],
        ["bench", "staleness", "--damping", "--report", "page.html"],
        ["bench", "swap", "--report", "page.html"],
        ["bench", "switching", "--report", "page.html"],
    ],
    ids=lambda arguments: "-".join(arguments[:3]),
)
def test_figures_need_matplotlib_which_is_said_before_a_run(
    arguments, tmp_path, monkeypatch, capsys
):
    rows = tmp_path / "rows.tsv"
    rows.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main([argument.format(rows=rows) for argument in arguments]) == 2
    assert "pip install 'leashed[plot]'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.tsv"]


def test_a_warning_is_one_line(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:1e30 2:1\n0 1:1 2:1e30\n1 1:3\n0 1:5\n")
    program = "from leashed.cli import main; main()"
    words = [
        "train",
        "--no-progress",
        "--model",
        "logistic_regression",
        "--data",
        "rows.svm",
        "--epochs",
        "3",
    ]
    ended = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (line,) = ended.stderr.splitlines()
    assert line.startswith("leashed: warning: the training crashed after ")


def test_version_and_help(capsys):
    for arguments in (["--version"], ["--help"], ["train", "--help"], ["bench", "scaling", "-h"]):
        with pytest.raises(SystemExit) as end:
            cli.main(arguments)
        assert end.value.code == 0
    assert lsh.__version__ in capsys.readouterr().out


IMPORTED = """
import signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
from leashed.cli import main
sys.exit(main(["policies"]))
"""


@pytest.mark.parametrize(
    "name", ["leashed._core", "leashed.cli.arguments", "leashed.cli.train", "numpy"]
)
def test_ctrl_c_while_it_is_imported_is_one_line(name):
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTED, name],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (130, "leashed: interrupted\n")


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
    out, err = process.communicate(timeout=240)
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
    assert {TrainResult.from_json(line).reason for line in lines} == {"seconds"}
    assert "runs per row" in err


def test_ctrl_c_stops_a_run_in_a_process_of_its_own(tmp_path):
    output = tmp_path / "runs.jsonl"
    plan = ["--epsilon", "1e-9,0.99", "--seconds", "2", "--threads", "2", "--batch-size", "16"]
    sweep = ["bench", "scaling", *plan, "--isolated", "--output", str(output)]
    lines, err = interrupt_after_the_first_line(*sweep)
    left = f"{21 - len(lines)} of 21 runs are left"
    assert f"{left}; the same command with --resume goes on" in err
    assert output.read_text(encoding="utf-8").splitlines() == [line.strip() for line in lines]


def test_too_little_memory_is_told_in_a_line(monkeypatch, capsys):
    def fail(*_, **__):
        raise MemoryError("Unable to allocate 72.0 GiB")

    monkeypatch.setattr("leashed.cli.train.train", fail)
    assert cli.main(["train", "--updates", "5"]) == 2
    err = capsys.readouterr().err
    assert err.splitlines()[-1] == "leashed: error: out of memory: Unable to allocate 72.0 GiB"
