"""Episodes as Oat's samples: one turn is one ``TransitionData``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from oat.types import TransitionData
from oat.utils.data import TransitionDataset

from gem_core.advantages import ESTIMATORS, GROUP_ESTIMATORS, estimate_episodes
from gem_core.episode import Episode
from gem_oat.advantages import Place

Advantage = Literal["rebn", "reinforce", "grpo", "dr_grpo", "rloo", "grpo_turn", "rloo_turn", "ppo"]
ADVANTAGES: tuple[str, ...] = (*ESTIMATORS, "ppo")


@dataclass
class GemTransition(TransitionData):  # type: ignore[misc]
    """Oat's sample of one turn, and where in its episode it was.

    Oat's own fields: ``prompt_ids`` is everything before the turn's sampled tokens, ``response_ids`` and
    ``response_logprobs`` are what was sampled, ``rewards`` has one number a response token: 0.0, and on the last token
    the turn's value (see :func:`turn_values`).
    """

    episode_id: str = ""
    group_id: str = ""
    turn: int = 0
    #: The turn's own reward, with that of neighbours that sampled no token.
    turn_reward: float = 0.0
    #: The value of the episode's next sample, 0.0 after its last.
    next_value: float = 0.0


def turn_values(advantage: str, episodes: Sequence[Episode], gamma: float) -> list[npt.NDArray[np.float64]]:
    """What goes on each turn's last token, shapes (turns,).

    The turn's discounted return, which the learner normalises (``rebn``), takes as it is (``reinforce``) or compares
    with its critic (``ppo``). A group's estimators need whole groups, which only the actor has: there it is the
    advantage.

    Raises:
        ValueError: a reward is not finite, or an unknown estimator.
    """
    if advantage not in ADVANTAGES:
        raise ValueError(f"advantage={advantage!r} is unknown; there are {', '.join(ADVANTAGES)}")
    name = advantage if advantage in GROUP_ESTIMATORS else "reinforce"
    return estimate_episodes(name, episodes, gamma=gamma)


def transitions(
    episode: Episode, values: Sequence[float] | npt.NDArray[np.float64], tokenizer: Any, *, mask_cut: bool = False
) -> list[GemTransition]:
    """One sample for each turn that sampled a token; a turn without one has no place in a loss over tokens.

    Args:
        episode: Played with a renderer and with log probabilities.
        values: One a turn, see :func:`turn_values`.
        tokenizer: Writes the texts that Oat logs.
        mask_cut: Leave turns that the length limit cut out of the loss (Oat's ``ignore_no_eos``).

    Raises:
        ValueError: a turn has tokens but no log probabilities.
    """
    out: list[GemTransition] = []
    prompt: list[int] = []
    early = 0.0  # of turns before the first sampled token
    for index, (turn, value) in enumerate(zip(episode.turns, values, strict=True)):
        prompt = [*([] if turn.new_sequence else prompt), *turn.context_ids]
        ids = list(turn.response_ids)
        if ids and out:
            out[-1].next_value = float(value)
        if ids and not turn.logprobs:
            raise ValueError(f"episode {episode.episode_id!r}, turn {index}: Oat needs the sampler's log probabilities")
        if ids:
            cut = turn.finish_reason == "length"
            out.append(
                GemTransition(
                    prompt=tokenizer.decode(prompt, skip_special_tokens=False),
                    prompt_ids=prompt,
                    response=tokenizer.decode(ids, skip_special_tokens=True),
                    response_ids=ids,
                    response_logprobs=list(turn.logprobs),
                    rewards=[0.0] * (len(ids) - 1) + [float(value)],
                    loss_mask=not (cut and mask_cut),
                    # Oat averages these over the batch, so all samples have the same keys and every value is a number.
                    info={
                        "actor/turn_reward": float(turn.reward),
                        "actor/turn_value": float(value),
                        "actor/turn_cut": float(cut),
                    },
                    episode_id=episode.episode_id,
                    group_id=episode.group_id,
                    turn=index,
                    turn_reward=turn.reward + early,
                )
            )
            early = 0.0
        elif out:
            out[-1].turn_reward += turn.reward
        else:
            early += turn.reward
        prompt = [*prompt, *ids]
    return out


def pick(samples: Sequence[GemTransition], size: int, rng: random.Random, *, last_turns: bool) -> list[GemTransition]:
    """Exactly ``size`` of the samples, in their order.

    Args:
        samples: Those of whole episodes, at least ``size``.
        size: Samples in the batch.
        rng: Draws.
        last_turns: What is left out are the first turns of episodes, so that each turn that stays has all that followed
            it (for a critic's bootstrapping); else any turns.

    Raises:
        ValueError: too few samples.
    """
    surplus = len(samples) - size
    if surplus < 0:
        raise ValueError(f"{len(samples)} samples are fewer than the {size} asked for")
    if not last_turns:
        return [samples[i] for i in sorted(rng.sample(range(len(samples)), size))]
    places: dict[str, list[int]] = {}
    for i, s in enumerate(samples):
        places.setdefault(s.episode_id, []).append(i)
    episodes = list(places.values())
    rng.shuffle(episodes)
    dropped: set[int] = set()
    for own in episodes:
        dropped.update(own[: surplus - len(dropped)])
    return [s for i, s in enumerate(samples) if i not in dropped]


class GemTransitionDataset(TransitionDataset):  # type: ignore[misc]
    """Oat's dataset of a learner's buffer, whose batches say which turn of which episode each row is."""

    def __init__(self, buffer: Sequence[GemTransition], tokenizer: Any, strategy: Any) -> None:
        super().__init__(buffer, tokenizer, strategy)
        for row, sample in zip(self.transitions, buffer, strict=True):
            row["turn"] = Place(sample.episode_id, sample.turn, sample.turn_reward, sample.next_value)

    def collate_fn(self, item_list: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super().collate_fn(item_list)
        batch["turns"] = [item["turn"] for item in item_list]
        return batch
