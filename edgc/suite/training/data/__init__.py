"""From text to tokens: which text a corpus names, how it is tokenised, and who sees which of it when."""
