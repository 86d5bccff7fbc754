"""training.optimizer: muon under megatron, over gloo."""

from __future__ import annotations

from tests.distributed.ranks import on_ranks


def test_engine_steps_torchs_muon_and_adamw_with_gradients_clipped_by_their_joint_norm() -> None:
    found = on_ranks("muon.py", 4, "2", "2")
    assert found["equal"]
    for norm, clipped in zip(found["norms"], found["clipped"], strict=True):
        assert abs(clipped - min(norm, found["limit"])) < 1e-4 * norm
    assert max(found["norms"]) > found["limit"], "nothing was clipped"
