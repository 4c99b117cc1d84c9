"""Where a study is kept: a journal file, SQLite or PostgreSQL, by Optuna; opened so that a crash leaves nothing behind.

Three things are added to Optuna's. The journal is locked by the kernel, which releases the lock of a process that dies;
an unfinished last line, of a power cut or a full disk, is removed before the next one is written; and what it says
about a storage that cannot be used becomes one line.
"""

import errno
import fcntl
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy.exc
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.engine import URL, make_url

from codesgc.errors import InputError, unknown

SCHEMES = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
FINISHED = 6  # the journal's code of an operation that sets a trial's state
BEGINNING = b'{"op_code":'


class Journal(JournalFileBackend):
    """A journal file whose every line is whole; finished trials are on the disk before anything else happens."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with open(self.path, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = whole_lines(file.seek(0, os.SEEK_END), file.fileno())
            file.truncate(end)
            file.seek(end)
            try:
                if file.write(text) != len(text):
                    file.write(text[file.tell() - end :])  # raises what stopped the first one
                if any(log["op_code"] == FINISHED for log in logs):
                    os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise


def whole_lines(size: int, file: int) -> int:
    """Bytes up to the end of the last line that is finished."""
    end = size
    while end > 0:
        start = max(0, end - 4096)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def open_storage(where: str, beat: int = 20) -> BaseStorage:
    """The storage of that URL, or the journal file of that path.

    `beat`: seconds between two signs of life of a worker on PostgreSQL; after three without, its trials are given up.
    """
    if "://" not in where:
        return JournalStorage(open_journal(where))
    url = parse_url(where)
    server = url.drivername.startswith("postgresql")
    options: dict[str, Any] = {"pool_pre_ping": True}
    if server:
        options["connect_args"] = {"connect_timeout": int(str(url.query.get("connect_timeout", 10)))}
    else:
        options["connect_args"] = {"timeout": 60}  # seconds that a worker waits for another one's transaction
        if url.database and not Path(url.database).parent.is_dir():
            raise InputError(f"storage {where}: there is no folder {Path(url.database).parent}; create it")
    with storage_errors(where), warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        for attempt in range(10):
            try:
                return RDBStorage(
                    url.render_as_string(hide_password=False),
                    engine_kwargs=options,
                    heartbeat_interval=beat if server else None,
                    grace_period=3 * beat if server else None,
                )
            except sqlalchemy.exc.DBAPIError as error:  # another worker was creating the tables at the same time
                if attempt == 9 or not any(word in str(error) for word in ("already exists", "UNIQUE", "duplicate")):
                    raise
    raise AssertionError


@contextmanager
def closing(storage: BaseStorage) -> Iterator[BaseStorage]:
    """A storage whose connections are closed at the end."""
    try:
        yield storage
    finally:
        storage.remove_session()
        if isinstance(storage, RDBStorage):
            storage.engine.dispose()


def open_journal(path: str) -> Journal:
    if os.path.isdir(path):
        raise InputError(f"storage {path}: that is a folder; expected a file, sqlite:///FILE or postgresql://HOST/NAME")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise InputError(f"storage {path}: there is no folder {os.path.dirname(path)}; create it, or give another path")
    if os.path.exists(path):
        with open(path, "rb") as file:
            first = file.read(len(BEGINNING))
        if not BEGINNING.startswith(first):
            raise InputError(f"storage {path}: that is no journal of Optuna's; expected one, or a new path")
    return Journal(path)


def parse_url(where: str) -> URL:
    """SQLAlchemy's URL with the driver that is installed with codesgc[tune]."""
    scheme, _, rest = where.partition("://")
    name, _, driver = scheme.partition("+")
    if name not in SCHEMES:
        raise unknown("storage", f"{scheme}://", [f"{known}://" for known in SCHEMES])
    try:
        url = make_url(f"{scheme if driver else SCHEMES[name]}://{rest}")
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise InputError(
            f"storage {name}://...: it cannot be read; expected sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME"
        ) from None
    if name == "sqlite" and url.database in (None, "", ":memory:"):
        raise InputError(f"storage {where}: expected the path of a file, as sqlite:///study.db")
    return url


def shown(where: str) -> str:
    """The storage without its password."""
    return parse_url(where).render_as_string(hide_password=True).replace("+psycopg", "") if "://" in where else where


def without_password(where: str) -> str:
    """The storage as it may be written to a file; the server's client finds a password in PGPASSWORD or ~/.pgpass."""
    if "://" not in where:
        return os.path.abspath(where)
    url = parse_url(where)
    bare = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
    return bare.render_as_string().replace("+psycopg", "")


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """What goes wrong with the storage as one line that names it."""
    try:
        yield
    except sqlalchemy.exc.DBAPIError as error:
        said = " ".join(str(error.orig).split())
        raise InputError(f"storage {shown(where)}: {said}; nothing stored is lost, the same command goes on") from error
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        cause = error.__cause__ or error
        said = " ".join(str(getattr(cause, "orig", cause)).split())
        raise InputError(f"storage {shown(where)}: {said}; nothing stored is lost, the same command goes on") from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        raise InputError(f"storage {where}: {error.strerror}; make room, and the same command goes on") from error
    except ImportError as error:
        raise InputError(f"storage {shown(where)}: {error}; pip install 'codesgc[tune]'") from error
    except RuntimeError as error:  # tables of another version, or of something else
        if "alembic" not in str(error) and "schema" not in str(error).lower():
            raise
        raise InputError(f"storage {shown(where)}: {' '.join(str(error).split())}") from error
