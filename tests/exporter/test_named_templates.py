"""A checkpoint's list of named chat templates: the default one and the one for tools are exported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tiny_bundles import byte_tokenizer, save_checkpoint

from pilotfish.exporter.errors import TokenizerError
from pilotfish.exporter.load import load_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

NAMED = [{"name": "default", "template": "{{ messages }}"}, {"name": "tool_use", "template": "{{ tools }}"}]


def test_named_chat_templates(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "named", byte_tokenizer(), spread=0.5)
    for file in folder.glob("chat_template*"):
        file.unlink()
    config_file = folder / "tokenizer_config.json"
    config = json.loads(config_file.read_text())
    config_file.write_text(json.dumps(config | {"chat_template": NAMED}))
    found = load_checkpoint(str(folder)).tokenizer
    assert found is not None
    assert (found.chat_template, found.tool_template) == ("{{ messages }}", "{{ tools }}")
    config_file.write_text(json.dumps(config | {"chat_template": NAMED[1:]}))
    with pytest.raises(TokenizerError, match='chat templates tool_use and none named "default"'):
        load_checkpoint(str(folder))
