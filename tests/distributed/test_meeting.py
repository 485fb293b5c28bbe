"""Ranks of one machine meet at its loopback, those of several by the names of the hosts."""

import socket

import pytest

from d5test.distributed.meeting import LOOPBACK, addresses, hosts, is_loopback
from tests.distributed.test_mpi import MPIRUN, under_mpirun


def of_all_ranks(*others: str, own: str) -> list[str]:
    """What all ranks say, of which this one is the first."""
    return [own, *others]


def test_one_machine_needs_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "one")
    assert hosts(lambda own: of_all_ranks("one", own=own)) == [LOOPBACK, LOOPBACK]
    assert hosts(lambda own: of_all_ranks("other", "one", own=own)) == ["one", "other", "one"]


def test_each_rank_has_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "one")

    def gather(own: object) -> list[object]:
        return [own, "other" if own == "one" else 7]

    first, second = addresses(gather)
    assert first.startswith("one:")
    assert 0 < int(first.partition(":")[2]) < 65536
    assert second == "other:7"


def test_what_is_a_loopback() -> None:
    assert is_loopback("127.0.1.1")
    assert not is_loopback("10.0.0.1")


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
def test_ranks_whose_hosts_have_other_names_meet() -> None:
    ran = under_mpirun(2, "tests.distributed.meeting_under_mpi")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.split() == ["3.0", "3.0"]
