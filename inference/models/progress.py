"""The progress of a load as transformers tells it: weights done of all, reported and not drawn."""

from __future__ import annotations

from typing import Any

from inference.events import Loading, Report


class WeightsProgress:
    """Stands in for transformers' tqdm: reports weights done of all, draws nothing."""

    def __init__(self, report: Report, iterable: Any = None, *_: Any, total: float | None = None, **__: Any) -> None:
        self._report, self._iterable = report, iterable
        self._total = total if total is not None else (len(iterable) if hasattr(iterable, "__len__") else None)
        self._done = 0.0

    def __iter__(self) -> Any:
        for item in self._iterable:
            yield item
            self.update(1)

    def __enter__(self) -> WeightsProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, n: float = 1) -> None:
        self._done += n
        if self._done == self._total or int(self._done) % 16 == 0:
            self._report(Loading("reading weights", self._done, self._total, "weights"))

    def close(self) -> None:
        """Nothing is drawn, so nothing is to be closed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("set_") or name in {"refresh", "reset", "clear", "display"}:
            return lambda *_, **__: None
        raise AttributeError(name)
