"""The part of vLLM 0.33.0 that polypath.plugins.vllm builds on, as that version has it: a wheel of
336 MB with hundreds of dependencies is not installed for tests."""
