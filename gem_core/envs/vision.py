"""Images beside text: the convention, and how to turn it into a chat message.

An environment with images returns a text observation in which each :data:`IMAGE_PLACEHOLDER` stands for one image,
and the images themselves, in that order, in ``info["images"]`` (a list of ``PIL.Image.Image``). Environments without
images have no such key. :func:`chat_content` builds the message content that multimodal chat templates take.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

#: Stands for one image in an observation.
IMAGE_PLACEHOLDER = "<image>"
#: Most pixels of an image, so that a small file cannot unpack to all of the memory.
MAX_PIXELS = 50_000_000


def chat_content(observation: str, images: Sequence[Image]) -> list[dict[str, Any]]:
    """The content of a user message: text and images in the order of the observation.

    Returns:
        ``[{"type": "image", "image": image}, {"type": "text", "text": "..."}, ...]``, as the processors of
        ``transformers`` take it.

    Raises:
        ValueError: the number of placeholders is not that of the images.
    """
    texts = observation.split(IMAGE_PLACEHOLDER)
    if len(texts) - 1 != len(images):
        raise ValueError(f"the observation has {len(texts) - 1} {IMAGE_PLACEHOLDER} for {len(images)} images")
    parts: list[dict[str, Any]] = []
    for i, text in enumerate(texts):
        if i:
            parts.append({"type": "image", "image": images[i - 1]})
        if text.strip():
            parts.append({"type": "text", "text": text.strip("\n")})
    return parts


def load_image(value: Any) -> Image:
    """An image from what datasets hold: a PIL image, encoded bytes, ``{"bytes": ..., "path": ...}``, a path, or a
    ``data:image/png;base64,...`` URL.

    Raises:
        ValueError: none of these, or not readable as an image.
        ImportError: Pillow is not installed.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError as e:
        raise ImportError("images need the package 'pillow': pip install 'gem-adapters[vision]'", name="PIL") from e
    if isinstance(value, Image.Image):
        return value
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str) and value.startswith("data:"):
        try:
            value = base64.b64decode(value.partition(",")[2], validate=True)
        except binascii.Error as e:
            raise ValueError(f"an image's data URL is not base64: {e}") from None
    if not isinstance(value, (bytes, str, Path)):
        raise ValueError(f"an image is a PIL image, bytes, a path or a data URL, got {type(value).__name__}")
    try:
        image = Image.open(io.BytesIO(value) if isinstance(value, bytes) else value)
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"an image has {image.width} x {image.height} pixels, more than {MAX_PIXELS}")
        image.load()
    except (UnidentifiedImageError, OSError) as e:
        shown = f"{len(value)} bytes" if isinstance(value, bytes) else repr(str(value))
        raise ValueError(f"an image cannot be read from {shown}: {e}") from None
    return image
