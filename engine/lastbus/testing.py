"""Tools for testing code that uses a bus: a manual clock, gates, and a look at whether everybody waits."""

from lastbus._kit.clock import ManualClock as ManualClock
from lastbus._kit.gates import Gate as Gate
from lastbus._kit.gates import Recorder as Recorder
from lastbus._kit.gates import everyone_blocked as everyone_blocked
