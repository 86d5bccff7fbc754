"""What an exported model can do without examples: lm-eval tasks on local data, the hub's or the corpus's."""

from edgc.suite.training.evaluation.zero_shot import evaluate_run

__all__ = ["evaluate_run"]
