"""A dataset whose rows carry only an environment id and a seed."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch.utils.data import Dataset

from gem_verl.settings import VALIDATION_SEED, GemSettings


class GemDataset(Dataset[dict[str, Any]]):
    """For ``data.custom_cls`` (``path: pkg://gem_verl.dataset``, ``name: GemDataset``); verl's data files are not read.

    Row ``i`` is the same environment and seed in any process and after a resume. verl builds the validation dataset
    from ``data.val_files`` with the same class: the file name ``gem://val`` tells the two apart.

    Each row: ``raw_prompt`` (empty; the environment writes the prompt), ``env_id``, ``env_kwargs`` (JSON),
    ``env_seed``, ``index``, ``data_source`` (the env id, so that verl reports validation for each environment apart).
    """

    def __init__(
        self, data_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1, **_: Any
    ) -> None:
        self.settings = GemSettings.from_config(config)
        files = [data_files] if isinstance(data_files, str) else list(data_files or [])
        self.validation = "gem://val" in files
        size = self.settings.val_size if self.validation else self.settings.train_size
        self.size = min(size, max_samples) if max_samples and max_samples > 0 else size
        self.first_seed = self.settings.seed + (VALIDATION_SEED if self.validation else 0)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, item: int) -> dict[str, Any]:
        if not 0 <= item < self.size:
            raise IndexError(item)
        seed = self.first_seed + item
        choice = self.settings.choose(seed)
        return {
            "raw_prompt": [{"role": "user", "content": ""}],
            "env_id": choice.env_id,
            "env_kwargs": json.dumps(choice.kwargs),
            "env_seed": seed,
            "index": item,
            "data_source": choice.env_id,
            # verl writes the ground truth into its rollout dumps: there it says which episode a row came from.
            "reward_model": {"style": "env", "ground_truth": f"{choice.env_id}#{seed}"},
            "extra_info": {"index": item},
            # verl's collate wants at least one tensor.
            "dummy_tensor": torch.zeros(1, dtype=torch.uint8),
        }
