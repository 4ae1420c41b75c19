"""Tables of the API's messages, from ``fl_core.wire.v1``, and one publication byte for byte, for docs/protocol.md."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from docs.parts.markdown import table
from docs.vectors import SEEDS, SMALL, header_vector, model_of, site
from fl_core.wire import v1

_NAME: Final = r"^[a-z0-9_.-]{1,64}$"
_FORMS: Final = {
    r"^[0-9a-f]{64}$": "64 hex digits",
    r"^[0-9a-f]{128}$": "128 hex digits",
    r"^(key|hash):[0-9a-f]{64}$": "`key:` or `hash:`, 64 hex digits",
    r"^([0-9a-f]{2})*$": "hex digits",
}


def publication_table() -> str:
    """The part ``transaction`` of a publication."""
    return table(("field", "required", "type", "range", "meaning"), _rows(v1.PublishRequest))


def selection_table() -> str:
    """What a selection is answered with."""
    return table(("field", "brief", "type", "range", "meaning"), _rows(v1.SelectionOut))


def transaction_table() -> str:
    """What a publication is answered with."""
    return table(("field", "brief", "type", "range", "meaning"), _rows(v1.TransactionOut))


def _rows(message: type[v1.Request | v1.Answer]) -> Iterator[tuple[str, ...]]:
    """A row for each field, those of objects in it too: name, whether it always stands there, type, range, meaning."""
    schema, is_asked = message.model_json_schema(), issubclass(message, v1.Request)

    def rows(fields: Mapping[str, Any], prefix: str, marked: frozenset[str]) -> Iterator[tuple[str, ...]]:
        for name, field in fields["properties"].items():
            kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
            item = kinds[0].get("items", kinds[0])
            inner = schema.get("$defs", {}).get(item.get("$ref", "").rpartition("/")[2])
            said = "or null" if "anyOf" in field and "default" not in field else ""
            meaning = field.get("description", "").replace("``", "`")
            yield (
                f"`{prefix}{name}`",
                "yes" if name in marked else "",
                f"{_kind(kinds[0])} {said}".strip(),
                _range(kinds[0]),
                meaning or " ".join(inner["description"].split()).replace("``", "`"),
            )
            if inner is not None:
                below = f"{prefix}{name}{'[]' if item is not kinds[0] else ''}."
                yield from rows(
                    inner, below, frozenset(inner["required"]) if name in marked or is_asked else frozenset()
                )

    return rows(schema, "", frozenset(schema["required"]))


def _kind(field: Mapping[str, Any]) -> str:
    if "pattern" in field:
        return _FORMS[field["pattern"]]
    if "enum" in field:
        return " or ".join(f"`{choice}`" for choice in field["enum"])
    kind = {"array": "list"}.get(field.get("type", ""), field.get("type", "object"))
    values = field.get("items") or field.get("additionalProperties") or field.get("patternProperties", {}).get(_NAME)
    if not values or "anyOf" in values:
        return kind
    inner = _kind(values)
    return f"{kind} of {inner if inner.endswith('digits') else inner + 's'}"


def _range(field: Mapping[str, Any]) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    said = [] if low is None else [f"≥ {low:g}"]
    said += [] if high is None else ["< 2^63" if high == 2**63 - 1 else f"≤ {high:g}"]
    counted = {"Items": "", "Properties": " members"}
    said += [f"≥ {field[f'min{what}']}{of}" for what, of in counted.items() if f"min{what}" in field]
    said += [f"≤ {field[f'max{what}']}{of}" for what, of in counted.items() if f"max{what}" in field]
    if "pattern" not in field and "maxLength" in field:
        said.append(f"≤ {field['maxLength']} characters")
    return ", ".join(said)


def signed_publication() -> str:
    """A header byte for byte, its id and signature, and the part ``transaction`` that says the same."""
    vector = header_vector("", site(metrics={"accuracy": 0.8125}))
    fields, header, model = vector["fields"], vector["header"], model_of(SMALL, 1, 2, 4)
    sizes = {
        "magic, version 1": 8,
        "ledger": 32,
        "kind: an update": 1,
        "author kind: a key": 1,
        "author": 32,
        "sequence 0": 8,
        f"created at {fields['created_at_ms']}": 8,
        "600 examples": 8,
        "no noise": 8,
        "start: the genesis model": 32,
        "SHA-256 of the model": 32,
        f"size of the model: {len(model)}": 8,
        "no selection, so no attachment": 32,
        "one parent": 2,
        "genesis": 32,
        "one metric": 2,
        "a name of 8 characters": 1,
        "accuracy": 8,
        "0.8125": 8,
        "no extensions": 2,
    }
    lines, at = [], 0
    for what, size in sizes.items():
        lines.append(f"{header[2 * at : 2 * (at + size)]:64}  {what}")
        at += size
    assert 2 * at == len(header), "every byte is said"
    part = {
        **{name: fields[name] for name in ("parents", "num_examples", "metrics", "start", "author", "sequence")},
        "created_at_ms": fields["created_at_ms"],
        "signature": vector["author_signature"],
        "id": vector["id"],
        "model_digest": fields["model_digest"],
    }
    return "\n".join(
        (
            "The header:\n\n```text",
            *lines,
            "```\n\nThe model, the author's private key (its 32 bytes of seed), the id, and the signature:\n\n```text",
            f"model      {model.hex()}",
            f"seed       {SEEDS['author']}",
            f"id         {vector['id']}",
            f"signature  {vector['author_signature']}",
            "```\n\nWhat is sent as the part `transaction`, beside the model:\n\n```json",
            json.dumps(part, indent=1),
            "```\n",
        )
    )
