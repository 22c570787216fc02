"""Chat templates of several manners, and conversations for them."""

from __future__ import annotations

from tokenizers import processors

from tests.models.tiny import CHATML, tiny_tokenizer

GENERATION = CHATML.replace(
    "message['content'] + '<|im_end|>\n' }}",
    "'' }}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}"
    "{% endgeneration %}{{ '\n' }}{% else %}{{ message['content'] + '<|im_end|>\n' }}{% endif %}",
)
# Like the reasoning templates in use: an empty think block is written before the last answer, and the think
# blocks of answers before the last question are dropped.
REASONING = """\
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' %}
{%- set answer = m.content.split('</think>')[-1].lstrip('\n') %}
{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\n') if '</think>' in m.content else '' %}
{%- if loop.index0 > ns.last %}{{- '<think>\n' + thought + '\n</think>\n\n' }}{% endif %}{{- answer }}
{%- else %}{{- m.content }}{% endif %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""
THINKING_PROMPT = REASONING.removesuffix("assistant\n' }}{% endif %}") + "assistant\n<think>\n' }}{% endif %}"


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def trained_text(tokenizer, row):
    return tokenizer.decode([t for t, live in zip(row.token_ids, row.loss_mask) if live])


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def bos_tokenizer(template_writes_bos=True):
    """Adds `<|endoftext|>` in front of text, and its template begins with it as well."""
    tokenizer = tiny_tokenizer(chat_template="{{ bos_token }}" + CHATML if template_writes_bos else CHATML)
    tokenizer.bos_token = "<|endoftext|>"
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    return tokenizer
