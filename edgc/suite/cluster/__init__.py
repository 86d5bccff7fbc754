"""Clusters: a model of what a training step costs on one, SLURM, and a lab cluster on this machine. No torch.

The model, so that nobody has to rent a cluster first: a RunSpec says what is trained, a Calibration what the machines
do in a second. Its parts are

- `parameters`: what every stage holds; `memory`: whether it fits;
- `compute`, `transfers`: seconds of a stage's forward and backward, of a message, of an exchange's kernels;
- `pipeline_schedule`, `sharding`: pipelines (1F1B) and full shards, event by event;
- `device_and_link`: a stage's exchange, in the order that training has;
- `step_model`: all of it put together: a step's time and where it goes; `whole_run`: a policy over a whole run;
- `forecasts`: from a scenario to what every method takes. `question` makes a scenario of what a user asks, and
  `experiments` of what an experiment's file says.
"""
