"""Stand-in for the functions of flash-attn that OpenRLHF imports whatever attention it uses; no attention kernels."""

__version__ = "2.8.3"
