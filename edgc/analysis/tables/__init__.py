"""What is measured, in rows and columns: one module a table, one name a table here.

Each module has `TITLE`, `CAPTION`, `build(study)` → numbers, and `present(numbers)` → the table as it is read.
"""

#: Every experiment has these …
TABLES = ("latency", "time", "accuracy", "paper", "deviations")

#: … and those of these that its file names.
MORE_TABLES = ("variants", "clamps", "parts", "sampling", "window", "observations")
