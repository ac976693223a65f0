"""The learner's own advantages and loss against plain NumPy and torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gem_core import advantages as adv

pytestmark = [pytest.mark.l2]
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def learner(make_args: Any, make_learner: Any) -> Any:
    return make_learner(make_args(learning_rate=0.0, num_ppo_epochs=1))


@pytest.fixture(scope="module")
def batch(learner: Any, make_actor: Any, take: Any) -> list[Any]:
    samples = take(make_actor(learner.args), 48)
    samples[3].loss_mask = False
    return samples


def collated(learner: Any, samples: list[Any]) -> dict[str, Any]:
    data = learner.dataset_builder(samples, learner.tokenizer, learner.strategy)
    return data.collate_fn([data[i] for i in range(len(data))])


def logps(model: Any, sample: Any) -> torch.Tensor:
    """Of one turn's sampled tokens, without padding."""
    ids = torch.tensor([sample.prompt_ids + sample.response_ids])
    out = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
    return out.gather(1, ids[0, 1:, None])[len(sample.prompt_ids) - 1 :, 0]


def numpy_rebn(samples: list[Any]) -> np.ndarray:
    returns = np.array([s.rewards[-1] for s in samples])
    return (returns - returns.mean()) / (returns.std() + 1e-9)


def losses_of(learner: Any, samples: list[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], dict[str, Any]]:
    """The loss of each minibatch that the learner's own step sends backwards; rows in the order of ``samples``."""
    seen: list[float] = []
    real = learner.strategy.backward
    monkeypatch.setattr(
        learner.strategy, "backward", lambda loss, model, opt: (seen.append(loss.item()), real(loss, model, opt))
    )
    monkeypatch.setattr(np.random, "permutation", np.arange)
    return seen, learner.learning_step(collated(learner, samples))


def test_rebn_is_that_of_all_turns_in_the_batch(learner: Any, batch: list[Any]) -> None:
    data = collated(learner, batch)
    mask = learner.get_completion_mask(data["attention_mask"], data["prompt_ids_lens"])[:, 1:]
    rewards = torch.zeros(mask.shape)
    rewards[torch.arange(len(batch)), mask.long().cumsum(1).argmax(1)] = torch.tensor([s.rewards[-1] for s in batch])
    got = learner.compute_monte_carlo_advantages(rewards, mask)
    assert got.numpy() == pytest.approx(numpy_rebn(batch), abs=TOLERANCE)
    assert learner._moments["return_std"] == pytest.approx(np.std([s.rewards[-1] for s in batch]), abs=TOLERANCE)


def test_the_loss_is_the_masked_sum_over_a_constant(
    learner: Any, batch: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    got, infos = losses_of(learner, batch, monkeypatch)
    advantages = numpy_rebn(batch)
    want = []
    for start in range(0, len(batch), 8):
        rows = []
        for s, a in zip(batch[start : start + 8], advantages[start : start + 8], strict=True):
            with torch.no_grad():
                now = logps(learner.model.model.module, s)
            cap = torch.exp(now - torch.tensor(s.response_logprobs)).clamp(max=2.0)
            # The policy has not moved (learning rate 0): the ratio is 1 and nothing is clipped.
            rows.append(float((-a * cap).sum()) / learner.args.generate_max_length * float(s.loss_mask))
        want.append(sum(rows) / len(rows))
    assert got == pytest.approx(want, abs=TOLERANCE)
    assert float(infos["sampler_learner_prob_diff_max"]) < 1e-5
    assert float(infos["adv_mean"]) == pytest.approx(0.0, abs=1e-5)


def test_length_norm_constant_divides_the_loss(learner: Any, batch: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as m:
        usual, _ = losses_of(learner, batch, m)
    args = SimpleNamespace(**{**vars(learner.args), "length_norm_constant": 50})
    monkeypatch.setattr(learner, "args", args)
    monkeypatch.setattr(learner, "masked_aggregator", None)
    learner.setup(args)
    try:
        other, _ = losses_of(learner, batch, monkeypatch)
    finally:
        learner.setup(SimpleNamespace(**{**vars(args), "length_norm_constant": None}))
    assert [10 * x for x in other] == pytest.approx(usual, abs=TOLERANCE)


def test_reinforce_update_has_the_gradient_of_reinforce(make_args: Any, make_learner: Any, batch: list[Any]) -> None:
    plain = make_learner(make_args(reinforce_update=True, learning_rate=0.0, num_ppo_epochs=1, train_batch_size=48))
    grads: dict[str, torch.Tensor] = {}

    def keep(loss: torch.Tensor, model: Any, optimizer: Any) -> None:
        for p, g in zip(
            plain.model.model.module.named_parameters(),
            torch.autograd.grad(loss / 6, list(plain.model.model.module.parameters())),
            strict=True,
        ):
            grads[p[0]] = grads.get(p[0], torch.zeros_like(g)) + g

    plain.strategy.backward = keep
    plain.strategy.optimizer_step = lambda *args, **kwargs: None
    plain.strategy.get_gradient_norm = lambda model: torch.tensor(0.0)
    infos = plain.learning_step(collated(plain, batch))  # Oat's own divides by zero here
    assert not [k for k in infos if k.startswith("kl_sample")]
    model = plain.model.model.module
    model.zero_grad()
    total = torch.tensor(0.0)
    for s, a in zip(batch, numpy_rebn(batch), strict=True):
        total = total - float(a) * logps(model, s).sum() / plain.args.generate_max_length * float(s.loss_mask)
    want = torch.autograd.grad(total / len(batch), list(model.parameters()))
    for (name, _), g in zip(model.named_parameters(), want, strict=True):
        assert torch.allclose(grads[name], g, atol=TOLERANCE), name


def test_ppo_is_gae_over_turns_with_a_critic(make_args: Any, make_learner: Any, make_actor: Any, take: Any) -> None:
    args = make_args(advantage="ppo", lam=0.9, critic_learning_rate=1e-3)
    learner = make_learner(args)
    batch = take(make_actor(args), 32)
    shuffled = [batch[i] for i in np.random.default_rng(0).permutation(len(batch))]
    data = collated(learner, shuffled)
    learner._places = data["turns"]
    mask = learner.get_completion_mask(data["attention_mask"], data["prompt_ids_lens"])[:, 1:]
    advantages, targets, values = learner.compute_ppo_advantages(
        torch.zeros(mask.shape), data["input_ids"], data["attention_mask"], mask
    )
    for episode_id in {s.episode_id for s in batch}:
        rows = sorted((s.turn, i) for i, s in enumerate(shuffled) if s.episode_id == episode_id)
        before = []
        for _, i in rows:
            with torch.no_grad():
                ids = torch.tensor([shuffled[i].prompt_ids])
                out = learner.critic(input_ids=ids, attention_mask=torch.ones_like(ids).float())
            before.append(float(out[0, -1]))
        want, want_targets = adv.gae([shuffled[i].turn_reward for _, i in rows], before, gamma=args.gamma, lam=args.lam)
        for (_, i), a, v in zip(rows, want, want_targets, strict=True):
            assert advantages[i][mask[i]].tolist() == pytest.approx([a] * int(mask[i].sum()), abs=1e-5)
            assert targets[i][mask[i]].tolist() == pytest.approx([v] * int(mask[i].sum()), abs=1e-5)
            assert advantages[i][~mask[i]].abs().sum() == 0
    assert values.shape == mask.shape
    info = learner.learning_step(data)
    assert torch.isfinite(info["critic_loss"])
