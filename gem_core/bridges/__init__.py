"""Environments of other libraries as gem_core environments: ``textarena:``, ``verifiers:``, ``openenv:``."""
