"""``GemRolloutWorker``: the drop-in for ``actor_rollout_ref.rollout.agent.agent_loop_manager_class``."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

from omegaconf import open_dict
from tensordict import TensorDict
from verl.utils.tensordict_utils import assign_non_tensor_stack

import gem_core as gem
from gem_core.chat import ChatTokenizer
from gem_core.wrappers.wrapper_factory import get_wrapper_fns
from gem_verl._compat import agent_loop_manager
from gem_verl.settings import VALIDATION_SEED, GemSettings

_Manager: Any = agent_loop_manager()


class GemRolloutWorker(_Manager):  # type: ignore[misc]  # verl has no type information
    """verl's own agent loop manager with every episode played by :class:`gem_verl.GemAgentLoop`.

    The settings come from ``data.gem``; a wrong one is refused here, before any worker starts.
    """

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        settings = GemSettings.from_config(config.data)
        for choice in settings.choices:
            gem.make(choice.env_id, **choice.kwargs).close()
        if settings.wrappers:
            get_wrapper_fns(settings.wrappers, tokenizer=cast(ChatTokenizer, object()))  # only the names are checked
        config = copy.deepcopy(config)
        with open_dict(config):
            agent = config.actor_rollout_ref.rollout.agent
            agent.agent_loop_config_path = str(Path(__file__).with_name("agent_loops.yaml"))
            agent.default_agent_loop = "gem"
        super().__init__(config, *args, **kwargs)
        self.settings = settings

    def generate_sequences(self, prompts: TensorDict) -> None:
        give_seeds(prompts, self.settings)
        super().generate_sequences(prompts)


def give_seeds(prompts: TensorDict, settings: GemSettings) -> None:
    """Gives the rows of a dataset that knows nothing of environments a seed each, by their ``index``.

    Here and not in the agent loop, since verl tells only the manager which rows are for validation: their seeds are
    held out.
    """
    if "env_seed" in prompts:
        return
    held_out = "validate" in prompts and bool(prompts["validate"])
    first = settings.seed + (VALIDATION_SEED if held_out else 0)
    assign_non_tensor_stack(prompts, "env_seed", [first + int(i) for i in prompts["index"]])
