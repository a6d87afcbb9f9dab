"""The benchmark is no part of the package: it is found beside it."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT))
