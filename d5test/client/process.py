"""A worker and its fork server, seen from the parent: started, asked, restarted, ended.

Whatever the framework does (it aborts, hangs, prints, starts threads), the next request finds a
worker, no file outlives this one, and what was printed is there to be shown. No process outlives
it, unless it has left the worker's session and lost its parents where nothing forks: there nobody
adopts it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any

from d5test.client.deadline import await_answer
from d5test.client.launch import Launch
from d5test.client.log import Log
from d5test.client.messages import BackendFailed, Crashed, Hung, typed
from d5test.worker import wire, worker
from d5test.worker.worker import COMMAND, REPLY, end_group

UNREAPED = os.WEXITED | os.WNOHANG | os.WNOWAIT
GRACE = 5.0
"""Seconds for the fork server, which runs no code of the framework, to answer."""


SHORTEST = 3.0
"""Seconds that a request has at least once another one of this backend hung: where one case hangs,
many do."""
SLOWER = 10
"""Times as long as the slowest answer so far it has, if that is more."""


ANSWERS = {"ok": 2, "unsupported": 2, "raised": 5}
"""Parts of an answer, by its first."""
HELLOS = {"ready": 1, "failed": 4}
"""Likewise of what a worker says once the framework is imported."""


def require(message: Any, kinds: Mapping[str, int]) -> None:
    """Raise `Garbled` unless a message is one of these: a framework may have written it."""
    kind = message[0] if isinstance(message, tuple) and message else None
    if not isinstance(kind, str) or kinds.get(kind) != len(message):
        raise wire.Garbled("it is no answer")
    if kind not in ("ok", "ready") and not all(isinstance(text, str) for text in message):
        raise wire.Garbled("it is no answer")


class WorkerProcess:
    """The worker of a launch. One request at a time, from one thread."""

    def __init__(self, launch: Launch, timeout: float, importing: float) -> None:
        self.launch = launch
        self.timeout = timeout
        self._importing = importing
        self._owner = os.getpid()
        self._log = Log()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        """To the fork server, or to the worker itself where nothing forks."""
        self._imported = False
        self._connection: socket.socket | None = None
        self._worker = 0
        self._failed: BackendFailed | None = None
        self._slowest = 0.0
        """Seconds that an answer took."""
        self.start()

    def start(self) -> None:
        """Begin to import the framework; the first request waits until that is done."""
        self._log.clear()
        ours, theirs = socket.socketpair()
        given, log = self.launch, str(self._log.fd)
        command = [given.python, "-u", worker.__file__]
        command += ["--target", given.target, "--device", given.device, "--log", log]
        command += ["--socket", str(theirs.fileno()), *(["--fork"] if given.fork else [])]
        if threading.current_thread() is threading.main_thread():
            command += ["--parent", str(os.getpid())]  # a thread's end would look like ours
        try:
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log.fd,
                stderr=self._log.fd,
                pass_fds=(theirs.fileno(), self._log.fd),
                env=given.variables(),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._failed = BackendFailed(f"{given.name}: cannot start {given.python}: {error}")
            return
        finally:
            theirs.close()
        self._control, self._imported = ours, False

    def ask(self, request: Any) -> Any:
        """The worker's answer. Raises BackendFailed, Crashed or Hung; the next request works."""
        connection = self._connected()
        begun = time.monotonic()
        try:
            connection.settimeout(self.timeout)
            wire.send(connection, request)
            await_answer(connection, self._worker, self.timeout)
            answer = wire.receive(connection, typed, self.timeout)
            require(answer, ANSWERS)
        except wire.Closed:
            raise Crashed(*self._ended()) from None
        except TimeoutError:
            stack = self._log.stack(self._worker)
            self.end_worker()
            waited = self.timeout
            self.timeout = min(waited, max(SHORTEST, SLOWER * self._slowest))
            raise Hung(waited, stack) from None
        except wire.Garbled as error:
            tail = self._log.tail()
            self.end_worker()
            raise Crashed(f"wrote into our connection: {error}", tail) from None
        except BaseException:  # interrupted: an answer that comes late must meet no other request
            self.end_worker()
            raise
        self._log.keep_small()
        self._slowest = max(self._slowest, time.monotonic() - begun)
        return answer

    def end_worker(self) -> None:
        """End the worker, not the fork server."""
        if self._worker:
            end_group(self._worker)
            self._ended()

    def close(self) -> None:
        """End all. Nothing is left behind; the object can be asked no more."""
        if os.getpid() != self._owner:
            return
        self._failed = self._failed or BackendFailed(f"{self.launch.name} was closed")
        self._close_server()
        self._log.close()

    def _connected(self) -> socket.socket:
        if self._connection is not None:
            return self._connection
        if self._failed is not None:
            raise self._failed
        try:
            self._introduced()
            return self._fork() if self.launch.fork else self._direct()
        except BackendFailed as failed:
            self._failed = failed
            raise
        except (wire.Closed, ConnectionError, TimeoutError):
            self._close_server()  # somebody killed the fork server while it was idle
            self.start()
            self._introduced()
            return self._fork() if self.launch.fork else self._direct()

    def _introduced(self) -> None:
        """Wait until the framework is imported. Raises BackendFailed."""
        if self._control is None:
            self.start()
        if self._failed is not None or self._control is None or self._server is None:
            raise self._failed or BackendFailed(f"{self.launch.name} did not start")
        if self._imported:
            return
        name, python = self.launch.name, self.launch.python
        try:
            await_answer(self._control, self._server.pid, self._importing)
            hello = wire.receive(self._control, typed, self._importing)
            require(hello, HELLOS)
        except wire.Closed:
            how = described(ended(self._server, GRACE))
            detail = self._log.tail()
            last = detail.splitlines()[-1] if how == "exit status 1" and detail else how
            self._close_server()
            raise BackendFailed(
                f"{name} died while {python} imported it: {last}", detail
            ) from None
        except (TimeoutError, wire.Garbled) as error:
            stack = self._log.stack(self._server.pid)
            self._close_server()
            late = f"was not imported by {python} within {self._importing:g} s"
            what = f"wrote into our connection: {error}" if str(error) else late
            raise BackendFailed(f"{name} {what}", stack) from None
        except BaseException:
            self._close_server()
            raise
        if hello[0] == "failed":
            _, kind, text, detail = hello
            self._close_server()
            why = f"{name} cannot be imported by {python}: {kind}: {text}"
            raise BackendFailed(why, detail, kind)
        self._imported = True

    def _fork(self) -> socket.socket:
        assert self._control is not None
        ours, theirs = socket.socketpair()
        with theirs:
            self._log.clear()
            self._control.settimeout(GRACE)
            socket.send_fds(self._control, [COMMAND.pack(b"F", 0)], [theirs.fileno()])
        self._worker = self._reply()
        self._connection = ours
        return ours

    def _direct(self) -> socket.socket:
        assert self._control is not None
        assert self._server is not None
        self._worker, self._connection = self._server.pid, self._control
        return self._control

    def _reply(self) -> int:
        assert self._control is not None
        content = self._control.recv(REPLY.size)
        if not content:
            raise wire.Closed
        return int(REPLY.unpack(content)[0])

    def _ended(self) -> tuple[str, str]:
        """How the worker ended, and what it printed last. Its process is gone afterwards."""
        if self._connection is not None:
            self._connection.close()
        if self.launch.fork and self._control is not None:
            status = self._reaped()
        else:
            status = ended(self._server, GRACE)
            self._close_server()
        self._connection, self._worker = None, 0
        return described(status), self._log.tail()

    def _reaped(self) -> int | None:
        assert self._control is not None
        try:
            self._control.settimeout(GRACE)
            self._control.sendall(COMMAND.pack(b"R", self._worker))
            try:
                return os.waitstatus_to_exitcode(self._reply())
            except TimeoutError:  # it lives, and has closed its connection
                end_group(self._worker)
                self._reply()
                return None
        except (wire.Closed, OSError):
            self._close_server()
            return None

    def _close_server(self) -> None:
        for connection in (self._connection, self._control):
            if connection is not None:
                connection.close()
        server, self._server = self._server, None
        self._connection, self._control, self._worker = None, None, 0
        if server is None:
            return
        ended(server, GRACE if self.launch.fork and self._imported else 0.0)


def ended(process: subprocess.Popen[bytes] | None, seconds: float) -> int | None:
    """How a process ended by itself within `seconds`. It, and what it started, is gone then."""
    if process is None or process.returncode is not None:
        return None if process is None else process.returncode
    deadline, alone = time.monotonic() + seconds, False
    while not alone:
        alone = os.waitid(os.P_PID, process.pid, UNREAPED) is not None
        if not alone and time.monotonic() >= deadline:
            break
        time.sleep(0 if alone else 0.002)
    end_group(process.pid)
    status = process.wait()
    return status if alone else None


def described(status: int | None) -> str:
    """An exit status as Python counts it, in words: `SIGSEGV`, `exit status 3`."""
    if status is None:
        return "closed its connection and lived on"
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
