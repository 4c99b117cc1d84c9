"""A file is either the published one or not there at all, whatever the network does; all on 127.0.0.1."""

import errno
import gc
import hashlib
import re
import socket
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest

from codesgc.datasets import DownloadError
from codesgc.datasets.download import address, data_folder, fetch
from codesgc.datasets.registry import FILES, PUBLISHERS, File
from codesgc.errors import InputError

FILE = "planetoid/toy"
CONTENT = bytes(range(256)) * 1000


class Answer(BaseHTTPRequestHandler):
    """Serves CONTENT, or fails at it in the way that `server.script` says for this request."""

    def do_GET(self):
        script = self.server.script
        self.server.asked.append(self.path)
        mode = script.pop(0) if len(script) > 1 else script[0]
        if mode == "missing":
            self.send_error(404)
            return
        body = {"truncated": CONTENT[:1000], "corrupt": CONTENT[::-1], "long": CONTENT + b"more"}.get(mode, CONTENT)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if mode == "cut" else body)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server of one file; the file is registered, and the server is where it is looked for."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    http.script, http.asked = ["good"], []
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    point_to(monkeypatch, http.server_port)
    yield http
    http.shutdown()
    http.server_close()
    thread.join()
    gc.collect()  # a connection left open is an error here, not in whichever test the collector next runs


def point_to(monkeypatch, port):
    monkeypatch.setenv("CODESGC_MIRROR", f"http://127.0.0.1:{port}/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setitem(FILES, FILE, File(len(CONTENT), hashlib.sha256(CONTENT).hexdigest()))
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)  # between attempts


def files_in(folder):
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def test_file_is_downloaded_once_and_then_read(server, tmp_path):
    home = tmp_path / "new" / "cache"
    assert fetch(FILE, home) == CONTENT
    assert fetch(FILE, home) == CONTENT
    assert server.asked == [f"/{FILE}"]
    assert files_in(home) == [FILE]


FAILURES = {
    "truncated": "truncated: 1000 of 256000 bytes",
    "corrupt": "wrong checksum: SHA-256 ",
    "long": "wrong checksum: SHA-256 ",
    "missing": "the server answered 404 Not Found",
    "cut": "the connection was cut half-way",
}


@pytest.mark.parametrize("mode", FAILURES)
def test_failed_download_is_explained_and_leaves_nothing_behind(mode, server, tmp_path):
    server.script = [mode]
    with pytest.raises(DownloadError) as caught:
        fetch(FILE, tmp_path)
    message = str(caught.value)
    url = f"http://127.0.0.1:{server.server_port}/{FILE}"
    assert message.startswith(f"{FILE}: downloading it from {url} failed: {FAILURES[mode]}")
    assert f"set CODESGC_DATA to a folder in which {FILE} lies" in message
    assert "\n" not in message
    assert len(server.asked) == 3
    assert files_in(tmp_path) == []

    server.script = ["good"]
    assert fetch(FILE, tmp_path) == CONTENT
    assert files_in(tmp_path) == [FILE]


@pytest.mark.parametrize("mode", FAILURES)
def test_passing_failure_is_overcome_by_trying_again(mode, server, tmp_path):
    server.script = [mode, "good"]
    assert fetch(FILE, tmp_path) == CONTENT
    assert len(server.asked) == 2


@pytest.mark.parametrize("damaged", [b"", CONTENT[:-1], CONTENT[::-1]])
def test_damaged_file_in_the_cache_is_downloaded_again(damaged, server, tmp_path):
    place = tmp_path / FILE
    place.parent.mkdir()
    place.write_bytes(damaged)
    assert fetch(FILE, tmp_path) == CONTENT
    assert place.read_bytes() == CONTENT


def test_damaged_file_that_cannot_be_replaced_is_reported_not_used(server, tmp_path):
    place = tmp_path / FILE
    place.parent.mkdir()
    place.write_bytes(CONTENT[:7])
    server.script = ["missing"]
    with pytest.raises(DownloadError, match=r"is damaged \(truncated: 7 of 256000 bytes\), and downloading .* 404"):
        fetch(FILE, tmp_path)


def test_damaged_file_in_a_read_only_folder_is_reported(server, tmp_path, monkeypatch):
    place = tmp_path / FILE
    place.parent.mkdir()
    place.write_bytes(CONTENT[::-1])

    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    # Permissions would not do: the superuser may write everywhere.
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    with pytest.raises(
        DownloadError, match=r"is damaged \(wrong checksum.*cannot be stored in .*Read-only file system"
    ):
        fetch(FILE, tmp_path)
    assert place.read_bytes() == CONTENT[::-1]
    assert server.asked == []


def test_folder_that_cannot_be_made_is_reported(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DownloadError, match=r"it cannot be stored in .*file"):
        fetch(FILE, tmp_path / "file" / "folder")


def test_directory_in_the_place_of_a_file_is_reported(server, tmp_path):
    (tmp_path / FILE).mkdir(parents=True)
    with pytest.raises(DownloadError, match=r"it cannot be read from .*Is a directory"):
        fetch(FILE, tmp_path)


def test_absent_network_is_reported(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        point_to(monkeypatch, free.getsockname()[1])
        with pytest.raises(DownloadError, match="no connection to the server"):
            fetch(FILE, tmp_path)
    assert files_in(tmp_path) == []


def test_silent_server_is_reported(server, tmp_path, monkeypatch):
    monkeypatch.setattr("pooch.downloaders.DEFAULT_TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        point_to(monkeypatch, silent.getsockname()[1])
        with pytest.raises(DownloadError, match="the server did not answer in time"):
            fetch(FILE, tmp_path)


def test_file_without_a_registered_checksum_is_not_even_asked_for(server, tmp_path):
    with pytest.raises(InputError, match=r"data file 'planetoid/toyy' is unknown.*did you mean 'planetoid/toy'"):
        fetch("planetoid/toyy", tmp_path)
    assert server.asked == []


def test_download_is_silent_away_from_a_terminal(server, tmp_path, capsys, monkeypatch):
    logger = pooch.get_logger()
    for handler in logger.handlers:  # made when stderr was another
        monkeypatch.setattr(handler, "stream", sys.stderr)
    fetch(FILE, tmp_path)
    assert capsys.readouterr() == ("", "")
    logger.info("others still hear pooch")
    assert "others still hear pooch" in capsys.readouterr().err


def test_download_shows_its_progress_on_a_terminal(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fetch(FILE, tmp_path)
    assert "100%" in capsys.readouterr().err


def test_folder_given_goes_before_the_variable_and_the_variable_before_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CODESGC_DATA", str(tmp_path / "variable"))
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert data_folder() == tmp_path / "variable"
    monkeypatch.setenv("CODESGC_DATA", "")
    assert data_folder().name == "codesgc"
    monkeypatch.delenv("CODESGC_DATA")
    assert data_folder() == pooch.os_cache("codesgc")


def test_addresses_are_pinned_to_a_commit(monkeypatch):
    monkeypatch.delenv("CODESGC_MIRROR", raising=False)
    for file in FILES:
        publisher, name = file.split("/")
        assert re.fullmatch(rf"https://\S+/[0-9a-f]{{40}}/\S*/{re.escape(name)}", address(file))
        assert address(file).startswith(PUBLISHERS[publisher])
        assert re.fullmatch("[0-9a-f]{64}", FILES[file].sha256)
