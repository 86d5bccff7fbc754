"""The page that answers: one HTML file made from published tables and figures. `edgc site` writes it."""
