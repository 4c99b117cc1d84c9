"""Signs of life: the trials of a worker that has died are given up, so that others are done in their place.

On a file a worker holds a lock beside it, which the kernel releases when the process ends in whatever way; on a server
Optuna's heartbeats tell. A trial that does not say whose it is belonged to a worker that died as it began.
"""

import fcntl
import os
import platform
import threading
import uuid
import warnings
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import optuna
from optuna.storages import BaseStorage, RDBStorage, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

NAMELESS = 10.0  # seconds in which a trial that has begun says whose it is


class Worker:
    """One process at work on a study; `name` is in its trials' user attribute "worker"."""

    look = 10.0  # seconds between two looks for dead workers

    def __init__(self, storage: BaseStorage) -> None:
        self.storage = storage
        self.name = f"{platform.node()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    def begin(self, trial: FrozenTrial) -> None:
        """Say that the trial is this worker's."""
        self.storage.set_trial_user_attr(trial._trial_id, "worker", self.name)

    def end(self, trial: optuna.Trial) -> None:
        """The trial needs no signs of life any more."""

    def is_dead(self, name: str) -> bool:
        """Whether a worker of that name has ended."""
        return False

    def bury(self, study: optuna.Study) -> None:
        """Fail the trials of workers that have died."""
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            name = trial.user_attrs.get("worker")
            if name is None:
                began = trial.datetime_start
                now = datetime.now(UTC) if began is not None and began.tzinfo else datetime.now()
                dead = began is None or (now - began).total_seconds() > NAMELESS
            else:
                dead = name != self.name and self.is_dead(name)
            if dead:
                with suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):  # another one was faster
                    study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def close(self) -> None:
        """No signs of life any more."""


class FileWorker(Worker):
    """Alive as long as it holds the lock on its file in the folder beside the storage."""

    def __init__(self, storage: BaseStorage, folder: Path) -> None:
        super().__init__(storage)
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.file = (folder / self.name).open("x")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def is_dead(self, name: str) -> bool:
        path = self.folder / os.path.basename(name)
        try:
            with path.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        path.unlink(missing_ok=True)
        return True

    def close(self) -> None:
        (self.folder / self.name).unlink(missing_ok=True)
        self.file.close()
        with suppress(OSError):  # others are there
            self.folder.rmdir()


class ServerWorker(Worker):
    """Alive as long as the heartbeats of its trials arrive; a thread sends them while the process trains."""

    def __init__(self, storage: RDBStorage) -> None:
        super().__init__(storage)
        self.heart, self.trials = storage, set[int]()
        self.look = float(storage.get_heartbeat_interval() or 20)
        self.lock, self.closed = threading.Lock(), threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def begin(self, trial: FrozenTrial) -> None:
        with self.lock:
            self.heart.record_heartbeat(trial._trial_id)
            self.trials.add(trial._trial_id)
        super().begin(trial)

    def end(self, trial: optuna.Trial) -> None:
        self.trials.discard(trial._trial_id)

    def _beat(self) -> None:
        while not self.closed.wait(self.look):
            with self.lock:
                for trial in list(self.trials):
                    with suppress(SQLAlchemyError, optuna.exceptions.StorageInternalError):  # the next one may arrive
                        self.heart.record_heartbeat(trial)
        self.heart.remove_session()

    def bury(self, study: optuna.Study) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            fail_stale_trials(study)
        super().bury(study)

    def close(self) -> None:
        self.closed.set()
        self.thread.join(timeout=5)


def make_worker(where: str, storage: BaseStorage) -> Worker:
    """The worker that suits the storage at that place."""
    if isinstance(storage, RDBStorage) and storage.get_heartbeat_interval() is not None:
        return ServerWorker(storage)
    path = storage.engine.url.database if isinstance(storage, RDBStorage) else where
    return FileWorker(storage, Path(f"{path}.workers"))
