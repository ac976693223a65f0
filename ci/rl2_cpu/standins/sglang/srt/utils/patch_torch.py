"""Nothing to patch where no GPU memory is shared."""


def monkey_patch_torch_reductions() -> None: ...
