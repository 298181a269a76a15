"""The client of Mofka, spoken to Thalweg's server.

One line starts the server that it finds by the group file: `thalweg serve
--group-file mofka.json`.
"""

from diaspora_stream.api import *  # noqa: F403
from diaspora_stream.api import __all__ as _shared
from thalweg_mofka import Client, Dialect, KafkaDriver, MofkaDriver, ServiceHandle

__all__ = [*_shared, "Client", "Dialect", "KafkaDriver", "MofkaDriver", "ServiceHandle"]
