"""What must work wherever the wheel is installed: import, train, the command line."""

import importlib.metadata
import importlib.resources
import subprocess
import sys
import sysconfig
from pathlib import Path

import leashed as lsh

package = importlib.resources.files("leashed")
assert str(package).startswith(sysconfig.get_path("platlib")), f"{package} is not installed"
for name in ("py.typed", "_core.pyi", "include/leashed.h", "include/leashed.pxd"):
    assert package.joinpath(name).is_file(), f"{name} is not in the wheel"

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    assert not sys._is_gil_enabled(), "importing leashed switched the GIL on"

data = lsh.datasets.synthetic_digits(n=512, seed=0)
model = lsh.models.mlp(784, [32], 10)
for discipline, threads in (
    (lsh.Sequential(), 1),
    (lsh.Synchronous(), 2),
    (lsh.Locked(), 2),
    (lsh.Hogwild(), 2),
    (lsh.Leashed(), 2),
    (lsh.Leashed(persistence=1), 2),
    (lsh.Leashed(persistence=0), 2),
):
    result = lsh.train(
        model,
        data,
        discipline=discipline,
        rule=lsh.SGD(0.05),
        threads=threads,
        batch_size=16,
        until=lsh.until(updates=200),
        init="he",
    )
    assert result.outcome == "stopped", f"{discipline}: {result.outcome}"
    assert result.total_updates >= 200, f"{discipline}: {result.total_updates} updates"
    assert result.final_loss < 0.8 * result.initial_loss, f"{discipline}: no progress"

version = importlib.metadata.version("leashed")
command = Path(sysconfig.get_path("scripts")) / "leashed"
line = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
assert version in line, f"`leashed --version` prints {line!r}, the package is {version}"
print(f"leashed {version} on Python {sys.version.split()[0]}: smoke test passed")
