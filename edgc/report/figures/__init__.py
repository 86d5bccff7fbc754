"""What is measured, as pictures. `edgc.report.selection` lists them."""
