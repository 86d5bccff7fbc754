"""What is measured, as pictures: one module a figure, one name a figure here.

Each module has `TITLE`, `NOTE` (how to read it), `ROWS` (axes above each other a model), `build(study)` → what is
plotted, and `draw(data, ax)` for one model (a sequence of axes where ROWS > 1).
"""

FIGURES = ("loss_step", "loss_bytes", "loss_seconds", "latency", "step_breakdown", "entropy_rank")
