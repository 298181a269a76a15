"""A program in ADIOS2's Python that reads: `read.py NAME [KEY=VALUE …]`. It knows nothing of Thalweg.

Tells each step in a line of JSON, and the end of the stream.
"""

import json
import sys

from adios2 import Adios, Stream
from adios2.bindings import StepStatus

io = Adios().declare_io("reading")
io.set_engine("SST")
io.set_parameters(dict(argument.split("=", 1) for argument in sys.argv[2:]))
with Stream(io, sys.argv[1], "r") as stream:
    print(json.dumps("open"), flush=True)
    while True:
        status = stream.begin_step()
        if status != StepStatus.OK:
            break
        corner = stream.read("field", [1, 2], [2, 3])
        step = {
            "step": stream.current_step(),
            "corner": corner.tolist(),
            "time": float(stream.read("time")),
            "note": stream.read("note"),
            "attributes": {name: stream.read_attribute(name) for name in stream.available_attributes()},
        }
        step["attributes"] = {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in step["attributes"].items()
        }
        stream.end_step()
        print(json.dumps(step), flush=True)
    print(json.dumps(str(status)), flush=True)
