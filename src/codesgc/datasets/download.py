"""Bytes of published files, from a folder or from the network, never without their checksum.

Files lie in sub-folders `planetoid/`, `amazon/` and `heterophilous/` of one folder: the one given, else the one that
the environment variable CODESGC_DATA names, else the cache folder that is customary on the operating system. A folder
in which all is right is only read. CODESGC_MIRROR, when set, is an address under which the same three sub-folders lie
and which is asked in place of the publishers.
"""

import hashlib
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from codesgc.datasets.registry import FILES, PUBLISHERS
from codesgc.errors import unknown


class DownloadError(OSError):
    """A dataset's file is neither in its folder nor could it be downloaded into it."""


def fetch(file: str, folder: str | Path | None = None) -> bytes:
    """The bytes of `file`, a key of `FILES`.

    What is returned is what was hashed: a file is read once, so that nothing can change between check and use.

    >>> fetch("planetoid/ind.coral.graph")
    Traceback (most recent call last):
    codesgc.errors.InputError: data file 'planetoid/ind.coral.graph' is unknown: ...
    """
    if file not in FILES:
        raise unknown("data file", file, FILES)
    home = data_folder(folder)
    found = ""
    try:
        data = (home / file).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        found = f"it cannot be read from {home} ({_system_reason(error)}), and "
    else:
        flaw = find_flaw(file, data)
        if flaw is None:
            return data
        found = f"the copy in {home} is damaged ({flaw}), and "
    try:
        return _download(file, home)
    except (OSError, ValueError) as error:
        raise DownloadError(
            f"{file}: {found}downloading it from {address(file)} failed: {_reason(error, home)}; try again later, or "
            f"set CODESGC_DATA to a folder in which {file} lies"
        ) from error


def data_folder(folder: str | Path | None = None) -> Path:
    """Where files are kept: `folder`, else CODESGC_DATA, else the user's cache.

    >>> data_folder("somewhere").name
    'somewhere'
    """
    if folder is not None:
        return Path(folder).expanduser()
    named = os.environ.get("CODESGC_DATA")
    if named:
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("codesgc"))


def address(file: str) -> str:
    """Where `file` is downloaded from."""
    mirror = os.environ.get("CODESGC_MIRROR")
    if mirror:
        return f"{mirror.rstrip('/')}/{file}"
    publisher, name = file.split("/")
    return PUBLISHERS[publisher] + name


def find_flaw(file: str, data: bytes) -> str | None:
    """What is wrong with `data` as the content of `file`; None when it is the published content.

    >>> find_flaw("amazon/amazon_cs.npz", b"")
    'truncated: 0 of 3410531 bytes'
    """
    expected = FILES[file]
    if len(data) < expected.size:
        return f"truncated: {len(data)} of {expected.size} bytes"
    digest = hashlib.sha256(data).hexdigest()
    if digest != expected.sha256:
        return f"wrong checksum: SHA-256 {digest}, expected {expected.sha256}"
    return None


def _download(file: str, home: Path) -> bytes:
    """Let pooch put the published file into its place below `home`; its bytes, checked once more."""
    import pooch
    import requests

    def download(url: str, output: str, pup: object) -> None:
        with ExitStack() as stack:  # pooch leaves the connection open when the server answers with an error

            def close_later(response: requests.Response, **_: object) -> None:
                stack.callback(response.close)

            to_disk = pooch.HTTPDownloader(
                progressbar=sys.stderr.isatty(), chunk_size=2**16, hooks={"response": close_later}
            )
            to_disk(url, output, pup)
        # pooch would find any flaw too, but call it a wrong checksum; at a ValueError it deletes the file and tries
        # again.
        flaw = find_flaw(file, Path(output).read_bytes())
        if flaw is not None:
            raise ValueError(flaw)

    store = pooch.create(
        path=home,
        base_url="",
        registry={file: f"sha256:{FILES[file].sha256}"},
        urls={file: address(file)},
        retry_if_failed=2,
    )
    logger = pooch.get_logger()
    was_disabled, logger.disabled = logger.disabled, True  # it would announce every file on stderr, terminal or not
    try:
        path = store.fetch(file, downloader=download)
    finally:
        logger.disabled = was_disabled
    data = Path(path).read_bytes()
    flaw = find_flaw(file, data)
    if flaw is not None:
        raise ValueError(flaw)
    return data


def _reason(error: Exception, home: Path) -> str:
    """Why a download failed, in one line."""
    from requests import exceptions

    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, exceptions.Timeout):
        return "the server did not answer in time"
    if isinstance(error, (exceptions.ChunkedEncodingError, exceptions.ContentDecodingError)):
        return "the connection was cut half-way"
    if isinstance(error, exceptions.SSLError):
        return "the server's certificate was not accepted"
    if isinstance(error, exceptions.ConnectionError):
        return "no connection to the server (is there a network?)"
    if isinstance(error, OSError) and not isinstance(error, exceptions.RequestException):
        return f"it cannot be stored in {home} ({_system_reason(error)})"
    return str(error)


def _system_reason(error: OSError) -> str:
    return "permission denied" if isinstance(error, PermissionError) else error.strerror or str(error)
