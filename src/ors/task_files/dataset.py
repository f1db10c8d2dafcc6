"""Rows of a `datasets` data set, which keeps them on disk itself."""

from collections.abc import Mapping
from typing import Any

from ors.task_files.rows import Rows
from ors.types import JSONObject


class DatasetRows(Rows):
    """Rows of a data set with a length, which gives a dictionary for an index."""

    def __init__(self, source: Any) -> None:
        if isinstance(source, Mapping):
            names = ", ".join(map(str, source))
            raise TypeError(f"this data set has the parts {names}: pass one of them, as dataset['train']")
        if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
            raise TypeError(
                f"tasks come from a path or a data set with a length, not {type(source).__name__}; "
                "load a streamed data set without streaming=True"
            )
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def row(self, index: int) -> JSONObject:
        """The row at an index.

        Raises:
            TypeError: it is not a dictionary.
        """
        found: Any = self._source[index]
        if not isinstance(found, Mapping):
            raise TypeError(
                f"row {index} of {type(self._source).__name__} is {type(found).__name__}, not a dictionary"
            )
        return found
