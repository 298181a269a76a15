"""A program in ADIOS2's Python that writes: `write.py NAME [KEY=VALUE …]`. It knows nothing of Thalweg.

Each line that comes is a step to be written, or `close`; each step that is ended is told by a line.
"""

import sys

import numpy as np
from adios2 import Adios, Stream

io = Adios().declare_io("writing")
io.set_engine("SST")
io.set_parameters(dict(argument.split("=", 1) for argument in sys.argv[2:]))
with Stream(io, sys.argv[1], "w") as stream:
    print("open", flush=True)
    step = 0
    for line in sys.stdin:
        if line.strip() == "close":
            break
        stream.begin_step()
        if step == 0:
            stream.write_attribute("title", "of the run")
            stream.write_attribute("grid", np.array([6, 8]))
            stream.write_attribute("axes", ["y", "x"])
        stream.write_attribute(f"at{step}", step)
        field = np.arange(48, dtype=np.float64).reshape(6, 8) + 100 * step
        stream.write("field", field, field.shape, [0, 0], field.shape)
        stream.write("time", step * 0.5)
        stream.write("note", f"step {step}")
        stream.end_step()
        print("step", step, flush=True)
        step += 1
print("closed", flush=True)
