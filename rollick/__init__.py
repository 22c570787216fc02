"""Rollick: post-training of language models that tells you when a number is wrong."""

__version__ = "0.1.0"
