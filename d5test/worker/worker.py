"""The process in which a framework is judged. Started by path, under any interpreter:

    PYTHON worker.py --target MODULE_OR_FILE:NAME --device DEVICE --socket FD --log FD [--fork]

Without `--fork` it is the worker itself. With it, it imports the framework once and then forks a
worker whenever it is asked, so that a crash costs a fork and no second import. It sees NumPy and
the framework of its own interpreter, and of d5test only `worker`, `backends` and what they need.
It ends when its socket is closed, that is when whoever started it ends.
"""

import argparse
import ctypes
import faulthandler
import gc
import glob
import os
import resource
import signal
import socket
import struct
import sys
import traceback
import types
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

OLDEST = (3, 10)
"""The first Python under which a worker runs."""
HERE = os.path.dirname(os.path.abspath(__file__))
COMMAND = struct.Struct("<cq")
"""To the fork server: F (fork; a socket comes along), or R and a process (how did it end?)."""
REPLY = struct.Struct("<q")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def stub_packages() -> None:
    """Make `d5test` and its packages without running what their `__init__` would import."""
    root = os.path.dirname(HERE)
    for name in ("d5test", "d5test.backends", "d5test.worker"):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(root, *name.split(".")[1:])]
        sys.modules[name] = package


class NoSuchBackend(ImportError):
    """A module was imported, and has no such name: it was mistyped, or taken out."""


def load(target: str) -> Any:
    """The backend's class, named as whatever a user brings: see `d5test.names`."""
    from d5test.names import hint, module_of

    where, _, name = target.rpartition(":")
    module = module_of(where)
    if not hasattr(module, name):
        classes = [n for n, value in vars(module).items() if isinstance(value, type)]
        meant = hint(name, [n for n in classes if not n.startswith("_")])
        raise NoSuchBackend(f"{where} has no {name}; {meant}")
    return getattr(module, name)


def die_with(parent: int) -> None:
    """Be killed when `parent` ends, also while the framework's own code runs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def adopt() -> None:
    """Become the parent of what is left of a child of ours, so that it can be found and ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def introduce(connection: socket.socket, target: str) -> Any:
    """Import the backend and say so, or say why not and end."""
    from d5test.worker import wire

    try:
        backend = load(target)
    except BaseException as error:  # noqa: BLE001 (whatever it is, it is reported)
        kind = type(error).__name__
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        wire.send(connection, ("failed", kind, str(error), lines))
        os._exit(0)
    wire.send(connection, ("ready",))
    return backend


def serve(connection: socket.socket, make: Any, device: str) -> None:
    """Answer requests until the other side closes the connection."""
    from d5test.worker import wire
    from d5test.worker.service import Service, on_device

    os.register_at_fork(after_in_child=connection.close)  # our death closes it, not a child's
    service = Service(lambda: on_device(make, device))
    while True:
        try:
            request = wire.receive(connection, lambda array: array)
            wire.send_bytes(connection, service.reply(request))
        except (wire.Closed, OSError):
            return


def leave() -> None:
    """End at once: a framework's destructors are not what is judged."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def serve_forks(control: socket.socket, make: Any, device: str) -> None:
    """Fork a worker when asked, tell how it ended, and end with the last of them."""
    gc.collect()
    gc.freeze()
    worker, ours = 0, children(os.getpid())
    while True:
        command, fds, _, _ = socket.recv_fds(control, COMMAND.size, 1)
        if len(command) < COMMAND.size:
            break
        verb, process = COMMAND.unpack(command)
        if verb == b"F":
            server = os.getpid()
            worker = os.fork()
            if worker == 0:
                try:
                    control.close()
                    os.setpgid(0, 0)
                    die_with(server)
                    serve(socket.socket(fileno=fds[0]), make, device)
                except BaseException:  # noqa: BLE001 (a child never runs on as the server)
                    traceback.print_exc()
                    sys.stderr.flush()
                    os._exit(70)
                leave()
            for fd in fds:
                os.close(fd)
            control.sendall(REPLY.pack(worker))
        else:
            os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
            end_group(process)
            _, status = os.waitpid(process, 0)
            worker = 0 if process == worker else worker
            end_orphans({worker, *ours})
            control.sendall(REPLY.pack(status))
    if worker:
        end_group(worker)
        os.waitpid(worker, 0)
        end_orphans(ours)


def end_group(leader: int) -> None:
    """End a worker that is not reaped yet, and all that it has started.

    What is in a session of its own is found by its parents; one whose parent ended is the fork
    server's, which has adopted it.
    """
    started = below(leader)
    for end in (os.killpg, os.kill):  # the group is not there yet in a worker's first moment
        kill(end, leader)
    for process in started:
        kill(os.kill, process)


def end_orphans(kept: Collection[int]) -> None:
    """End and reap what ended workers have left, which is our child now."""
    while left := [child for child in children(os.getpid()) if child not in kept]:
        for child in left:
            end_group(child)
        for child in left:
            os.waitpid(child, 0)


def kill(end: Callable[[int, int], None], process: int) -> None:
    """End a process or a group, if it is still there."""
    with suppress(ProcessLookupError, PermissionError):
        end(process, signal.SIGKILL)


def below(process: int) -> list[int]:
    """The children of a process, and theirs."""
    started = children(process)
    for child in started:  # which grows
        started += children(child)
    return started


def children(process: int) -> list[int]:
    """Of all of its threads, where the system tells: Linux does, `proc_pid_task(5)`."""
    pids = []
    for path in glob.glob(f"/proc/{process}/task/*/children"):
        with suppress(OSError), open(path) as file:  # it may have ended
            pids += [int(child) for child in file.read().split()]
    return pids


def main() -> None:
    """Become the worker, or the fork server, that the command line describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--log", type=int, required=True)
    parser.add_argument("--fork", action="store_true")
    parser.add_argument("--parent", type=int, default=0)
    options = parser.parse_args()
    if sys.version_info < OLDEST:
        needed, this = (".".join(map(str, version[:2])) for version in (OLDEST, sys.version_info))
        sys.exit(f"a worker of d5test needs Python {needed} or later, this is {this}")
    # `import training` is not ours
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != HERE]
    if options.parent:
        die_with(options.parent)
    os.set_inheritable(options.socket, False)
    os.set_inheritable(options.log, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(options.log)
    faulthandler.register(signal.SIGUSR1, options.log)
    adopt()
    connection = socket.socket(fileno=options.socket)
    stub_packages()
    make = introduce(connection, options.target)
    if options.fork:
        serve_forks(connection, make, options.device)
    else:
        serve(connection, make, options.device)
    leave()


if __name__ == "__main__":
    main()
