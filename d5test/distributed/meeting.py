"""Where ranks find each other, on one machine or on several.

All on one machine use its loopback, which a firewall or the name of a host does not concern.
"""

import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

LOOPBACK = "127.0.0.1"
Gather = Callable[[Any], Sequence[Any]]
"""What all ranks say, in their order, of what each of them says: `comm.allgather`."""


def hosts(gather: Gather) -> list[str]:
    """By what name each rank is reached."""
    names = [*gather(socket.gethostname())]
    return [LOOPBACK] * len(names) if len(set(names)) == 1 else names


def addresses(gather: Gather) -> list[str]:
    """A host and a port at which each rank may listen: `name:port`."""
    with socket.socket() as free:
        free.bind(("", 0))
        # while all ports are taken: no two are the same
        ports = gather(free.getsockname()[1])
    return [f"{host}:{port}" for host, port in zip(hosts(gather), ports, strict=True)]


def is_loopback(address: str) -> bool:
    """Whether an IP address is one of this machine for itself."""
    return ip_address(address).is_loopback
