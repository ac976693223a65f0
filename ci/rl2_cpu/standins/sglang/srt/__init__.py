"""Part of the stand-in for SGLang; see ci/rl2_cpu/README.md."""
