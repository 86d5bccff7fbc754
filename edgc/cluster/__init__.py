"""The cluster model: what a training step costs on a cluster that nobody has to rent first. No torch.

A RunSpec says what is trained, a Calibration what the machines do in a second; the parts are

- `parameters`, `topology`: what every stage holds, and which ranks share which links;
- `compute`, `transfers`: seconds of a stage's forward and backward, of a message, of an exchange's kernels;
- `schedule`: 1F1B and interleaved pipelines, event by event;
- `step`: all of it put together: a step's time and where it goes.
"""
