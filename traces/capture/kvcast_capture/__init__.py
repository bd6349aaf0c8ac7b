"""Captures attention traces of Hugging Face decoders for kvcast.

Modules, from the bottom: `errors`, `safetensors_file` (the container), `plan` (what is captured), `spool` (what has been
captured so far, on disk), `assemble` (spool to trace), `drive` (prompt in blocks, then decode steps) need nothing beyond the
standard library. `tensors` needs PyTorch, `hugging_face` needs transformers.
"""
