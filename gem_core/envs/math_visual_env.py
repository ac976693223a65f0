"""Mathematics questions about pictures (``math:Geometry3K``)."""

from __future__ import annotations

from typing import Any

from gem_core.core import Info
from gem_core.envs.math_env import MathEnv
from gem_core.envs.vision import IMAGE_PLACEHOLDER, load_image
from gem_core.grading.math import DEFAULT_TIMEOUT


class MathVisualEnv(MathEnv):
    """As :class:`~gem_core.envs.math_env.MathEnv`, with images: see :mod:`gem_core.envs.vision` for the convention.

    The observation holds one ``<image>`` for each image (put in front where the question has none), and
    ``info["images"]`` of ``reset`` the images as ``PIL.Image.Image``, in that order.
    """

    sample = "geometry"

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: Any = None,
        image_key: str = "images",
        question_key: str = "problem",
        answer_key: str = "answer",
        seed: int = 0,
        use_mp: bool = True,
        eval: bool = False,
        prompt: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Args:
        image_key: Column of the image or list of images.

        The others are those of :class:`~gem_core.envs.math_env.MathEnv`.
        """
        self._image_key = image_key
        super().__init__(
            dataset_name,
            split,
            dataset,
            question_key,
            answer_key,
            seed,
            use_mp,
            eval=eval,
            prompt=prompt,
            timeout=timeout,
        )
        self.images: list[Any] = []

    def column_names(self, columns: dict[str, str]) -> dict[str, str]:
        return {**columns, "image_key": self._image_key}

    def begin(self) -> str:
        text = super().begin()
        cell = self.cell("image_key")
        try:
            self.images = [load_image(v) for v in (cell if isinstance(cell, (list, tuple)) else [cell])]
        except ValueError as e:
            raise ValueError(f"{self.table.label}: row {self.index}: {e}") from None
        missing = len(self.images) - text.count(IMAGE_PLACEHOLDER)
        if missing < 0:
            raise ValueError(
                f"{self.table.label}: row {self.index} has {len(self.images)} images for "
                f"{text.count(IMAGE_PLACEHOLDER)} {IMAGE_PLACEHOLDER}"
            )
        return IMAGE_PLACEHOLDER * missing + text

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        observation, info = super().reset(seed, options)
        return observation, {**info, "images": list(self.images)}
