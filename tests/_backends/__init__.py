"""Back ends under test: one adapter each, all of one shape, so that a parity test never asks which one it has."""

from tests._backends.base import Backend as Backend
from tests._backends.catalogue import backend_params as backend_params
from tests._backends.catalogue import open_backend as open_backend
