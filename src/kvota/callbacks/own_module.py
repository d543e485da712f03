"""The module of a callback of somebody's own: imported, and imported anew when its file has changed."""

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

# What each module's file held when it was imported.
_imported: dict[str, bytes] = {}


class _Uncached(SourceFileLoader):
    """Reads the source itself: compiled files are told apart by whole seconds only."""

    def get_code(self, fullname: str) -> CodeType | None:  # noqa: ARG002
        """Compile the file as it is now."""
        return self.source_to_code(self.get_data(self.path), self.path)


def imported(name: str) -> ModuleType:
    """Import a module; where its file has changed since, a new one, while who has the old one keeps it.

    Raises:
        ImportError: there is none.
        Exception: whatever its code raises; a module that was there before stays.
    """
    before = sys.modules.get(name)
    if before is not None and has_changed(name):
        loader = _Uncached(name, file_of(name))
        fresh = importlib.util.spec_from_loader(name, loader)
        assert fresh is not None
        module = importlib.util.module_from_spec(fresh)
        sys.modules[name] = module
        try:
            loader.exec_module(module)
        except BaseException:
            sys.modules[name] = before
            raise
    else:
        importlib.invalidate_caches()  # it may have been written a moment ago
        module = importlib.import_module(name)
    source = _source(name)
    if source is not None:
        _imported[name] = source
    return module


def has_changed(name: str) -> bool:
    """True where the file of a module that was imported here is another one now."""
    source = _source(name) if name in _imported else None
    return source is not None and source != _imported[name]


def file_of(name: str) -> str:
    """The file of a module, as its own traceback names it; empty: it has none."""
    module = sys.modules.get(name)
    found = getattr(module, "__file__", None)
    if found is None:
        spec = _spec(name)
        found = None if spec is None else spec.origin
    return found or ""


def _source(name: str) -> bytes | None:
    spec = _spec(name)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        return None
    try:
        return spec.loader.get_data(spec.loader.path)
    except OSError:
        return None  # it has gone; what was imported goes on


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
