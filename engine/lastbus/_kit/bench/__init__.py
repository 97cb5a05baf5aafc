"""Bench: what the bus costs beside a bare task and beside other buses, in the same run on the same machine.

Figures come with the ratio that they are about and, where there is one, the aim. They compare; they promise nothing
about production.
"""

from lastbus._kit.bench.program import main as main
