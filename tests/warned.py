"""A warning that comes once, and names the line that led to it."""

from __future__ import annotations

import sys
import warnings
from types import TracebackType


class once:
    """Within it as many warnings come as texts are given, each with one of them, and no others.

    Args:
        *texts: a part of each, word by word. ``tests/house/test_warnings.py`` looks for those of all
            warnings that there are.
        category: of all.
        here: whether they name a line of the file that says ``with``; not those of a thread.
    """

    def __init__(
        self, *texts: str, category: type[Warning] = RuntimeWarning, here: bool = True
    ) -> None:
        self.texts, self.category, self.here = texts, category, here
        self._caught = warnings.catch_warnings(record=True)

    def __enter__(self) -> list[warnings.WarningMessage]:
        self._file = sys._getframe(1).f_code.co_filename
        found = self._caught.__enter__()
        assert found is not None
        self.found = found
        warnings.simplefilter("always")
        return self.found

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._caught.__exit__(kind, error, trace)
        if kind is not None:
            return
        said = [str(one.message) for one in self.found]
        assert len(said) == len(self.texts), said
        for text in self.texts:
            assert sum(text in message for message in said) == 1, (text, said)
        assert {one.category for one in self.found} == {self.category}
        if self.here:
            assert {one.filename for one in self.found} == {self._file}
