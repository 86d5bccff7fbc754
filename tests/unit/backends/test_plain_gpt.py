"""GPT-2 in plain PyTorch, in bf16 on a CPU: up to its rounding what fp32 gives."""

import torch
from torch import Tensor

from edgc.suite.backends.plain_gpt import PlainGPT
from edgc.suite.config import Model

MODEL = Model(name="tiny", num_layers=2, hidden_size=32, num_heads=4, seq_length=16)


def trained(precision: torch.dtype | None, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and its gradients by name."""
    model = PlainGPT(MODEL, vocab_size=128, seed=1)
    with torch.autocast("cpu", precision, enabled=precision is not None):
        loss = model(tokens)
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_bf16_rounds_loss_and_gradients_and_no_more():
    tokens = torch.randint(0, 128, (3, 17), generator=torch.Generator().manual_seed(0))
    (loss, expected), (rounded, found) = trained(None, tokens), trained(torch.bfloat16, tokens)
    assert 0 < abs(rounded - loss) < 2e-3
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() < 0.03 * gradient.norm() + 1e-6, name


def test_no_token_sees_a_later_one_in_bf16():
    """What the first eight positions come to does not change with what follows."""
    model = PlainGPT(MODEL, vocab_size=128, seed=1).eval()
    seen: list[Tensor] = []
    model.decoder["final_layernorm"].register_forward_hook(lambda _, __, out: seen.append(out[:, :8]))
    tokens = torch.arange(17)[None]
    later = torch.cat([tokens[:, :8], 100 - tokens[:, 8:]], 1)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(tokens), model(later)
    assert torch.equal(*seen)
