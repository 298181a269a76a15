"""The Diaspora streaming API on Thalweg: see `diaspora_stream.api`."""

from thalweg_mofka.shadow import refuse

refuse("diaspora_stream", ("pydiaspora_stream_api",), __file__)
