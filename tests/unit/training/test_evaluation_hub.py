"""Asking for the hub takes seconds at most, and offline mode ends where it should."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from datasets import config
from huggingface_hub import constants, is_offline_mode

from edgc.suite.training.evaluation.tasks import hub_reachable, offline


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the user had not chosen offline mode, and without a proxy before this machine's own address."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(config, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("no_proxy", "*")


class Answer(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_HEAD(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Refusal(Answer):
    status = 403


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    servers = []

    def start(handler: type[Answer]) -> None:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_hub_that_answers_is_reachable(serve):
    serve(Answer)
    assert hub_reachable()


def test_a_hub_that_refuses_is_not(serve):
    serve(Refusal)
    assert not hub_reachable()


def test_a_silent_hub_costs_the_time_limit_and_no_more(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, but never answers
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        begin = time.monotonic()
        assert not hub_reachable(seconds=0.5)
        assert time.monotonic() - begin < 60, "without a limit it would wait for ever"


def test_in_offline_mode_nobody_asks(serve, monkeypatch: pytest.MonkeyPatch):
    serve(Answer)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not hub_reachable()


def test_offline_holds_inside_and_is_undone_after_an_error():
    def fail() -> None:
        with offline():
            assert is_offline_mode()
            assert config.HF_HUB_OFFLINE
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not is_offline_mode()
    assert not config.HF_HUB_OFFLINE
