"""What is used by ``with``, and closed at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Closing"]


class Closing:
    """Is itself what ``with`` gives, and is closed whatever ends that."""

    def close(self) -> None:
        """Ends what was begun."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
