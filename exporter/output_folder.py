"""The output folder: made whole under another name beside its place, then put there in one step.

A file lock says whether whoever makes such a folder is alive; what a killed process left is removed by the next export.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pilotfish.bindings.operating_system import exchange_paths, lock_file

from .border import FULL
from .errors import OptionError, OutputExistsError, OutputFullError
from .weights_file import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOCK, _PARTIAL, _OLD = ".lock", ".partial", ".old"
_JOURNALS = f"*{JOURNAL}"
_TOKEN_BYTES = 4  # of a name that no other process uses
_OCCUPIED = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}


def check_output(out: Path, *, overwrite: bool) -> None:
    """Refuses an output that exists, or that cannot be made.

    Raises:
        OutputExistsError: `out` exists and `overwrite` is false, or it is a file, or not a bundle.
        OptionError: no folder can be made there.
    """
    _check_path(out)
    if not out.exists():
        above = next(folder for folder in out.absolute().parents if folder.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise OptionError(f"{out} cannot be made: {above} is not a folder that may be written to")
        return
    if not overwrite:
        raise _exists(out)
    if not out.is_dir() or (any(out.iterdir()) and not (out / "manifest.json").is_file()):
        raise OutputExistsError(f"{out} exists and is not a bundle; it is not overwritten")


def remove_abandoned(out: Path) -> list[str]:
    """Removes what killed exports into `out` left beside it, and says of each what it was.

    A folder that such an export had moved aside, to put its own in the place, goes back. One with the journal of a
    weights file stays: `new_folder` takes that file over.

    Raises:
        OptionError: no file system has such a path.
    """
    _check_path(out)
    out = out.resolve()
    said = []
    for partial in _abandoned(out):
        said += _clear(partial, out)
    return said


def _abandoned(out: Path) -> Iterator[Path]:
    """The folders that killed exports were making, each locked until the next is asked for."""
    ours = re.compile(rf"\.{re.escape(out.name)}\.\w+")  # older versions had other letters between the points
    found = [path for path in out.parent.glob(".*") if ours.fullmatch(path.stem)]
    for partial in sorted({path.with_suffix(_PARTIAL) for path in found if path.suffix in (_LOCK, _PARTIAL, _OLD)}):
        lock = _lock(partial.with_suffix(_LOCK))
        if lock is None:
            continue  # another export is making it
        try:
            yield partial
        finally:
            _unlock(partial.with_suffix(_LOCK), lock)


@contextmanager
def new_folder(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """A temporary sibling of `out` that takes its place when the block succeeds and vanishes when it fails.

    Whatever ends it, `out` is as it was or as the block made it. Where it is a link, the folder behind it is replaced.
    Of several at once that may not overwrite, one succeeds; of those that may, the last one's folder stays.

    Raises:
        OptionError: no folder can be made there.
        OutputExistsError: another export was faster.
        OutputFullError: there is no room for what the block writes.
    """
    out = out.resolve()
    temporary = lock = None
    try:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            temporary, lock = _reserve(out)
            temporary.mkdir()
            _take_over(out, temporary)
        except OSError as error:
            raise OptionError(f"{out} cannot be made: {error.strerror}") from error
        yield temporary
        if overwrite:
            check_output(out, overwrite=True)
            _replace(temporary, out)
        else:
            _move(temporary, out)
    except OSError as error:
        if error.errno in FULL:
            raise OutputFullError(f"the disk is full while writing {out}; free some space and export again") from error
        raise
    finally:
        if temporary is not None and lock is not None:
            shutil.rmtree(temporary, ignore_errors=True)  # not there after a success, unless it now is the old folder
            _unlock(temporary.with_suffix(_LOCK), lock)


def _check_path(out: Path) -> None:
    """Refuses a path that is too long, or that is no text: not one in UTF-8, or with a null character."""
    try:
        os.fsencode(out).decode()
        whole = out.resolve()
        with suppress(FileNotFoundError, NotADirectoryError):  # the next check's to say
            os.lstat(_partial(whole, "0" * 2 * _TOKEN_BYTES))  # the longest name that is made there
    except OSError as error:
        raise OptionError(f"{out} cannot be made: {error.strerror}; choose another path") from error
    except (ValueError, RuntimeError) as error:  # the second: links that lead in a circle
        raise OptionError(f"{os.fspath(out)!r} cannot be made: {error}; choose another path") from error


def _partial(out: Path, token: str) -> Path:
    return out.parent / f".{out.name}.{token}{_PARTIAL}"


def _exists(out: Path) -> OutputExistsError:
    return OutputExistsError(f"{out} exists; choose another folder, or replace it: --overwrite, overwrite=True")


def _reserve(out: Path) -> tuple[Path, int]:
    """A name that no other process uses, and its lock."""
    while True:
        partial = _partial(out, secrets.token_hex(_TOKEN_BYTES))
        lock = _lock(partial.with_suffix(_LOCK))
        if lock is not None:
            return partial, lock


def _lock(path: Path) -> int | None:
    """Takes the lock that a file stands for; None where another process has it or has just removed it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock_file(lock)
        if os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _unlock(path: Path, lock: int) -> None:
    path.unlink(missing_ok=True)
    os.close(lock)


def _clear(partial: Path, out: Path) -> list[str]:
    said, old = [], partial.with_suffix(_OLD)
    if old.exists():
        if out.exists():
            shutil.rmtree(old)
        else:
            old.rename(out)
            said.append(f"put {out} back, which an export that was killed had moved aside")
    if partial.exists() and not list(partial.glob(_JOURNALS)):
        shutil.rmtree(partial)
        said.append(f"removed {partial}, which an export that was killed had left")
    return said


def _take_over(out: Path, folder: Path) -> None:
    """Moves the weights files of killed exports that have a journal into `folder`, and removes what else these left."""
    for partial in _abandoned(out):
        journals = list(partial.glob(_JOURNALS))
        for journal in journals:
            weights = journal.with_suffix(".bin")
            if weights.exists() and not (folder / weights.name).exists():
                weights.rename(folder / weights.name)
                journal.rename(folder / journal.name)
        if journals:
            shutil.rmtree(partial, ignore_errors=True)


def _move(folder: Path, out: Path) -> None:
    try:
        folder.rename(out)
    except OSError as error:
        if error.errno in _OCCUPIED:
            raise _exists(out) from error
        raise


def _replace(folder: Path, out: Path) -> None:
    """Puts `folder` in the place of `out`, which may exist; what was there is then at `folder`, or gone."""
    while True:
        try:
            if out.exists():
                _exchange(folder, out)
            else:
                folder.rename(out)
        except OSError as error:
            if error.errno not in {*_OCCUPIED, errno.ENOENT} or not folder.exists():
                raise
            continue  # another export has just put one there, or taken one away
        return


def _exchange(folder: Path, out: Path) -> None:
    if not exchange_paths(folder, out):
        _exchange_in_steps(folder, out)


def _exchange_in_steps(folder: Path, out: Path) -> None:
    """Where one step is not to be had: a process killed between two of these leaves what `remove_abandoned` mends."""
    old = folder.with_suffix(_OLD)
    out.rename(old)
    try:
        folder.rename(out)
    except BaseException:
        old.rename(out)
        raise
    shutil.rmtree(old)
