"""The part of fastsafetensors 0.3.2 that polypath.plugins.fastsafetensors uses, for tests where
that package is not installed (it needs PyTorch). It cannot show that the package has it so: the
same test runs with the real one where it is there."""

__version__ = "0.3.2"
