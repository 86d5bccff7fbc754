"""What is measured, in rows and columns. `edgc.report.selection` lists them."""
