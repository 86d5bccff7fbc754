"""What is measured, in rows and columns: one module per table, one name per table here.

Each module has `TITLE`, `CAPTION` (what each column is), `build(study)` → numbers, and `present(numbers)` → the table
as it is read. It may have `paragraph(numbers)` → what the numbers say, a sentence a line; it stands above the table.
It may have `caption(experiment)` → `CAPTION` as this experiment needs it.

A key of `CAPTION` is a column's heading, with or without its unit. An ellipsis in it stands for any words.
"""

#: Every experiment of mode train has these …
TABLES = ("latency", "time", "accuracy", "paper", "deviations")

#: … every one of mode time has these …
TIME_TABLES = ("links", "links_bytes", "links_conditions")

#: … and, where the cluster model predicted it, …
PREDICTED_TABLES = ("predicted",)

#: … every one of mode simulate has these …
SIMULATED_TABLES = ("forecast", "claims")

#: … and those of these that its file names.
MORE_TABLES = (
    "variants",
    "clamps",
    "parts",
    "sampling",
    "window",
    "observations",
    "learning_rates",
    "time_to_loss",
    "layout_costs",
    "method_costs",
    "bandwidth",
    "adaptation",
    "credit",
    "replicas",
    "choice",
)
