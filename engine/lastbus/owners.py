"""Ownership templates: who starts a task keeps it, cancels it and waits for its end."""

from lastbus._owners.polling import PollingSource as PollingSource
from lastbus._owners.requests import RequestApi as RequestApi
from lastbus._owners.requests import RequestClosedError as RequestClosedError
from lastbus._owners.source import Source as Source
