"""What an exported model can do without examples: lm-eval tasks on local data, the hub's or the corpus's."""
