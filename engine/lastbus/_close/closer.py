"""Closer: the base class of every bus, in which the rooms of the close contract meet.

A close is *accepted* in one synchronous step (`acceptance`). A task for its teardown is made, or *adopted* from
whoever made it (`adoption`). A *watchdog* judges the round when that task ends. The *teardown* drains running
handlers, stops listeners and releases components. Each caller's *completion* waits on a future of its own.
"""

from __future__ import annotations

from lastbus._close.teardown import Teardown


class Closer(Teardown):
    """What a bus inherits: `request_close()` and `close()`; it adds what there is to drain, to stop and to release.

    Nothing here comes between a caller and its own wait.

    Keeps: CLOSE-03, CLOSE-04.
    """
