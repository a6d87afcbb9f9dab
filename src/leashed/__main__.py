"""``python -m leashed``: the command line."""

import sys

from leashed.cli import main

sys.exit(main())
