"""Owns when freezegun is bridged: as soon as it and queuey are both loaded, in whichever order.

A connection dies of a freeze that was not told of pika, and a test may import either right before it freezes time.
So the import system is asked to say when one of them has been loaded. Loads nothing before somebody asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_AWAITED: Final = ("freezegun.api", "queuey_rabbitmq")


class BridgesWhatIsLoaded(MetaPathFinder):
    """A finder that finds what the others find, and hears when what it waits for has been loaded."""

    def __init__(self) -> None:
        sys.meta_path.insert(0, self)
        _bridge_if_all_are_loaded()

    def close(self) -> None:
        """Wait for nothing more. Idempotent."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return what the other finders find, for a module that is waited for."""
        if name not in _AWAITED:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next((spec for finder in others if (spec := finder.find_spec(name, path, target)) is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader)
        return spec


class _Telling(Loader):
    """A loader that does what another does, and then leaves the module to that one."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let the other loader do it."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Let the other loader do it, with nothing between it and its module; then look whether all are there."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _bridge_if_all_are_loaded()


def _bridge_if_all_are_loaded() -> None:
    if all(name in sys.modules for name in _AWAITED):
        from queuey_fake import frozen_time

        frozen_time.bridge()
