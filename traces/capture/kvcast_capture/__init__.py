"""Captures attention traces of Hugging Face decoders for kvcast.

Modules, from the bottom up: `errors`, `safetensors_file` (the container), `plan` (what is captured), `spool` (the data captured
so far, on disk), `assemble` (spool to trace) and `drive` (prompt in blocks, then decode steps) need only the standard library.
`tensors` needs PyTorch, `hugging_face` needs transformers.
"""
