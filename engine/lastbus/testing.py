"""Tools for testing code that uses a bus: a manual clock, gates, a look at whether everybody waits, a bad link."""

from lastbus._kit.clock import ManualClock as ManualClock
from lastbus._kit.gates import Gate as Gate
from lastbus._kit.gates import Recorder as Recorder
from lastbus._kit.gates import everyone_blocked as everyone_blocked
from lastbus._kit.proxy import DOWN as DOWN
from lastbus._kit.proxy import UP as UP
from lastbus._kit.proxy import FaultProxy as FaultProxy
