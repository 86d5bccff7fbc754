"""One stage's gradients through an aggregator, steered by a policy; and what is observed of them meanwhile."""
