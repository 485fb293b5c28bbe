"""Two versions measured in one session: may the new one go out?

    versions     which interpreters or backends they are, and fresh workers of each
    session      rounds of both versions and of a second worker of the old one, in turns
    evidence     what a session says of a benchmark; what all, and fresh pairs, say of its metrics
    decider      who is a suspect, whether pairs convict, and what is decided in the end
    corpus       the frozen cases on both versions, judged before anything is timed
    gate         sessions, restarts, fresh pairs: what is measured next, and when it is enough
    rule         what decides, as a page carries it
    outcome      the comparison (`d5test.compare`) that comes of it
    accepted     slowdowns that are known and accepted, with reason and expiry
    alternating  whole runs of both versions, in turns: what is timed on many ranks
    trial        false alarms and power of the gate on this machine: --self-test

What was measured about deciders stands in docs/gate.md.
"""

from d5test.gate.gate import Gate
from d5test.gate.outcome import Outcome
from d5test.gate.versions import Versions
from d5test.timed import Subject

__all__ = ["Gate", "Outcome", "Subject", "Versions"]
