"""A worker and its fork server, seen from the parent: started, asked, restarted, ended.

Whatever the framework does (it aborts, hangs, prints, starts threads), the next request finds a
worker, no file outlives this process, and what was printed is there to be shown. No process of the
worker's outlives it either, but one that has left the worker's session and lost its parents on a
system without subreapers.
"""

import fcntl
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d5test.client.deadline import await_answer
from d5test.client.messages import BackendFailed, Crashed, Hung, typed
from d5test.worker import wire, worker
from d5test.worker.worker import COMMAND, REPLY, below, end_group, kill

UNREAPED = os.WEXITED | os.WNOHANG | os.WNOWAIT
GRACE = 5.0
"""Seconds for the fork server, which runs no code of the framework, to answer."""
SHORTEST = 3.0
"""Seconds that a request has at least once another one of its operator hung: where one case hangs,
many do."""
SLOWER = 10
"""Times as long as the slowest answer so far it has, if that is more."""
ANSWERS = {"ok": 2, "unsupported": 2, "refused": 2, "raised": 6, "lost": 6}
"""Parts of an answer, by its first."""
HELLOS = {"ready": 1, "failed": 4}
"""Likewise of what a worker says once the framework is imported."""
THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NPROC",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
"""Variables that frameworks read a number of threads from; NPROC is XLA's."""
LINES = 40
OURS = re.compile(r'  File "[^"]*d5test/worker/[^"]*", line \d+ in .*|Extension modules: .*')
"""What faulthandler writes that says nothing of a framework."""
MOST = 16 << 20
"""Bytes after which what was printed is forgotten: a framework may print with each call."""
STACK_SECONDS = 0.5
"""Seconds for a process to write where it stands."""


@dataclass(frozen=True)
class Launch:
    """What to start. `environment` adds variables, or removes those that are `None`."""

    name: str
    target: str
    python: str
    device: str = ""
    threads: int | None = None
    fork: bool = True
    environment: Mapping[str, str | None] | None = None

    def variables(self) -> dict[str, str]:
        """The worker's environment. Another interpreter is given none of our search paths."""
        variables: dict[str, str | None] = {**os.environ}
        if self.python != sys.executable:
            variables |= dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__"))
        if self.threads is not None:
            variables |= dict.fromkeys(THREADS, str(self.threads))
        if self.threads == 1:
            flags = os.environ.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen=false"
            variables["XLA_FLAGS"] = " ".join(flags).strip()
        variables |= self.environment or {}
        return {name: value for name, value in variables.items() if value is not None}


class Log:
    """The standard output and error of one worker after the other: a file, read from its end.

    It has no name, so that it cannot be left behind, however this process ends.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self.fd = self._file.fileno()
        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, flags | os.O_APPEND)

    def clear(self) -> None:
        """Forget what was printed."""
        os.ftruncate(self.fd, 0)

    def size(self) -> int:
        """Bytes that were printed."""
        return os.fstat(self.fd).st_size

    def tail(self, start: int = 0) -> str:
        """The last lines from byte `start` on."""
        end = self.size()
        start = max(start, end - 400 * LINES)
        text = os.pread(self.fd, end - start, start).decode(errors="replace")
        lines = [line for line in text.splitlines() if not OURS.fullmatch(line)]
        return "\n".join(lines[-LINES:])

    def stack(self, process: int) -> str:
        """Where the threads of `process` are, which faulthandler writes when told to."""
        start = size = self.size()
        try:
            os.kill(process, signal.SIGUSR1)
        except ProcessLookupError:
            return ""
        deadline = time.monotonic() + STACK_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.02)
            before, size = size, self.size()
            if start < size == before:
                break
        return self.tail(start)

    def close(self) -> None:
        """Give the file back to the system."""
        self._file.close()


def require(message: Any, kinds: Mapping[str, int]) -> None:
    """Raise `Garbled` unless a message is one of these: a framework may have written it."""
    kind = message[0] if isinstance(message, tuple) and message else None
    known = isinstance(kind, str) and kinds.get(kind) == len(message)
    if not known or (kind != "ok" and not all(isinstance(text, str) for text in message)):
        raise wire.Garbled("it is not an answer")


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
        self._server_size = 0
        """Bytes of the fork server when it forked the worker."""
        self._failed: BackendFailed | None = None
        self._slowest = 0.0
        """Seconds that an answer took."""
        self._hung: set[tuple[Any, ...]] = set()
        """Operators of which a request was not answered; () stands for what is of none."""
        self.start()

    def start(self) -> None:
        """Begin to import the framework; the first request waits until that is done."""
        self._log.clear()
        ours, theirs = socket.socketpair()
        launch, log = self.launch, str(self._log.fd)
        command = [launch.python, "-u", worker.__file__]
        command += ["--target", launch.target, "--device", launch.device, "--log", log]
        command += ["--socket", str(theirs.fileno()), *(["--fork"] if launch.fork else [])]
        if threading.current_thread() is threading.main_thread():
            command += ["--parent", str(os.getpid())]  # a thread's end would look like ours
        try:
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log.fd,
                stderr=self._log.fd,
                pass_fds=(theirs.fileno(), self._log.fd),
                env=launch.variables(),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._failed = BackendFailed(f"{launch.name}: cannot start {launch.python}: {error}")
            return
        finally:
            theirs.close()
        self._control, self._imported = ours, False

    def ask(self, request: Any, meanwhile: Callable[[], object] | None = None) -> Any:
        """The worker's answer. Raises BackendFailed, Crashed or Hung; the next request works.

        meanwhile  called once the worker has the request, beside it
        """
        connection = self._connected()
        operator, seconds = request[1:2], self.timeout
        if operator in self._hung:
            seconds = min(seconds, max(SHORTEST, SLOWER * self._slowest))
        begun = time.monotonic()
        try:
            connection.settimeout(seconds)
            wire.send(connection, request)
            if meanwhile is not None:
                meanwhile()
            await_answer(connection, self._worker, seconds)
            answer = wire.receive(connection, typed, seconds)
            require(answer, ANSWERS)
        except wire.Closed:
            raise Crashed(*self._ended()) from None
        except TimeoutError:
            stack = self._log.stack(self._worker)
            self.end_worker()
            self._hung.add(operator)
            raise Hung(seconds, stack, seconds < self.timeout) from None
        except wire.Garbled as error:
            tail = self._log.tail()
            self.end_worker()
            raise Crashed(f"wrote into our connection: {error}", tail) from None
        except BaseException:  # interrupted: an answer that comes late must meet no other request
            self.end_worker()
            raise
        if self._log.size() > MOST:
            self._log.clear()
        self._slowest = max(self._slowest, time.monotonic() - begun)
        return answer

    def grown(self) -> int:
        """Bytes by which the worker's resident memory exceeds its fork server's, which has
        imported the framework and nothing more; 0 where that cannot be told.
        """
        if not (self.launch.fork and self._worker):
            return 0
        return resident(self._worker) - self._server_size

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
            return self._open()
        except BackendFailed as failed:
            self._failed = failed
            raise
        except (wire.Closed, ConnectionError, TimeoutError):
            self._close_server()  # somebody killed the fork server while it was idle
            self.start()
            return self._open()

    def _open(self) -> socket.socket:
        """A connection to a worker, which is forked where that is wished for."""
        control, process = self._introduced()
        if not self.launch.fork:
            self._worker, self._connection = process, control
            return control
        ours, theirs = socket.socketpair()
        with theirs:
            self._log.clear()
            control.settimeout(GRACE)
            socket.send_fds(control, [COMMAND.pack(b"F", 0)], [theirs.fileno()])
        self._worker, self._server_size = _replied(control), resident(process)
        self._connection = ours
        return ours

    def _introduced(self) -> tuple[socket.socket, int]:
        """The connection to the server, and its process, once the framework is imported."""
        if self._control is None:
            self.start()
        control, server = self._control, self._server
        if self._failed is not None or control is None or server is None:
            raise self._failed or BackendFailed(f"{self.launch.name} did not start")
        if self._imported:
            return control, server.pid
        python, kind = self.launch.python, ""
        try:
            await_answer(control, server.pid, self._importing)
            hello = wire.receive(control, typed, self._importing)
            require(hello, HELLOS)
        except wire.Closed:
            how = described(ended(server, GRACE))
            detail = self._log.tail()
            last = detail.splitlines()[-1] if how == "exit status 1" and detail else how
            why = f"died while {python} imported it: {last}"
        except (TimeoutError, wire.Garbled) as error:
            detail = self._log.stack(server.pid)
            late = f"was not imported by {python} within {self._importing:g} s"
            why = f"wrote into our connection: {error}" if str(error) else late
        except BaseException:
            self._close_server()
            raise
        else:
            if hello[0] == "ready":
                self._imported = True
                return control, server.pid
            _, kind, text, detail = hello
            why = f"cannot be imported by {python}: {kind}: {text}"
        self._close_server()
        raise BackendFailed(f"{self.launch.name} {why}", detail, kind)

    def _ended(self) -> tuple[str, str]:
        """How the worker ended, and what it printed last. Its process is gone afterwards."""
        if self._connection is not None:
            self._connection.close()
        if self.launch.fork and self._control is not None:
            status = self._reaped(self._control)
        else:
            status = ended(self._server, GRACE)
            self._close_server()
        self._connection, self._worker = None, 0
        return described(status), self._log.tail()

    def _reaped(self, control: socket.socket) -> int | None:
        try:
            control.settimeout(GRACE)
            control.sendall(COMMAND.pack(b"R", self._worker))
            try:
                return os.waitstatus_to_exitcode(_replied(control))
            except TimeoutError:  # it lives, and has closed its connection
                end_group(self._worker)
                _replied(control)
                return None
        except (wire.Closed, OSError):
            self._close_server()
            return None

    def _close_server(self) -> None:
        server, self._server = self._server, None
        # a worker that is no fork's may end as soon as it is left, and nobody adopts its children;
        # of one that was waited for, the number may be another process's by now
        alone = server is not None and server.returncode is None and not self.launch.fork
        started = below(server.pid) if server is not None and alone else []
        for connection in (self._connection, self._control):
            if connection is not None:
                connection.close()
        self._connection, self._control, self._worker = None, None, 0
        ended(server, GRACE if self.launch.fork and self._imported else 0.0)
        for process in started:
            kill(os.kill, process)


def _replied(control: socket.socket) -> int:
    """What the fork server says."""
    content = control.recv(REPLY.size)
    if not content:
        raise wire.Closed
    return int(REPLY.unpack(content)[0])


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


def resident(process: int) -> int:
    """The resident memory of a process in bytes; 0 where the system does not say."""
    try:
        pages = Path(f"/proc/{process}/statm").read_bytes().split()[1]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


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
