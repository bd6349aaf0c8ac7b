"""A small Llama-shaped model trained on retrieval, tracking and copying, and its true accuracy under KV-cache policies.

`model`, `tasks`, `train`: the model and its training tasks. `policies`: the policies as they run inside its attention. `grid`,
`evaluate`: true accuracy of policy × budget × task. `capture`: traces for kvcast. `selections`: the policies run on a trace, to be
compared with kvcast's own. `proxies`, `compare`: true accuracy compared with kvcast's proxies. All modules except these two need
PyTorch (1.13 or later).
"""
