"""Bodies as messages: JSON, read strictly, and the form of a publication."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from fl_core.models import Buffer
from fl_core.wire import v1
from ledger_server.http import strict_json
from ledger_server.http.body import media_type, read_body
from ledger_server.http.problems import Problem, invalid

FORM_SLACK: Final = strict_json.MAX_BYTES + 16 * 1024
"""Bytes that a form may have beside its model: the transaction, boundaries, headers."""
UPLOAD_SLACK: Final = 64 * 1024
"""A model a little too large is still read, so that the refusal can say what is wrong with it."""
_PART_TYPES: Final[dict[bytes | None, tuple[str, ...]]] = {
    b"transaction": ("application/json",),
    b"model": (v1.MODEL_MEDIA_TYPE, "application/octet-stream", v1.STEP_MEDIA_TYPE),
}

_AS_IT_IS: Final = (b"binary", b"8bit", b"7bit")

M = TypeVar("M", bound=BaseModel)


async def json_body(request: Request, message: type[M]) -> M:
    """The body as a message; raises as ``read_body`` and ``parse_json`` do."""
    return parse_json(await read_body(request, limit=strict_json.MAX_BYTES), message)


def parse_json(body: Buffer, message: type[M]) -> M:
    """A JSON text as a message, strictly: nothing unknown, nothing coerced.

    Raises:
        Problem: 400 for what is no JSON, 422 for JSON that is refused.
    """
    value = strict_json.loads(body)
    try:
        return message.model_validate(value)
    except ValidationError as error:
        raise invalid(error) from error


async def publication_form(request: Request, *, model_bytes: int) -> tuple[v1.PublishRequest, Buffer, bool]:
    """The two parts of a publication: its transaction, and the model; and whether that is coded.

    Args:
        request: With a body of ``multipart/form-data``.
        model_bytes: Size of this ledger's models.

    Raises:
        Problem: 400 for what is no form, 413 for its size, 415 for another type, 422 for other parts than these two.
    """
    if media_type(request) != "multipart/form-data":
        raise Problem("unsupported-media-type", "send multipart/form-data with transaction and model")
    _, options = parse_options_header(request.headers["content-type"])
    body = await read_body(request, limit=model_bytes + FORM_SLACK)
    parts = _parts(bytes(body), boundary=options.get(b"boundary", b""))
    for part in parts:
        types = _PART_TYPES.get(part.name, ())
        if types and part.media_type and part.media_type not in types:
            raise Problem("unsupported-media-type", f"a part must be {' or '.join(types)}")
    named = {part.name: part for part in parts}
    if len(parts) != len(_PART_TYPES) or named.keys() != _PART_TYPES.keys():
        raise Problem("parts-invalid", "send the parts transaction and model, each once, and no others")
    model = named[b"model"]
    asked = parse_json(named[b"transaction"].data, v1.PublishRequest)
    return asked, model.data, model.media_type == v1.STEP_MEDIA_TYPE


@dataclass
class _Part:
    """One part of a form: its headers, by names in lower case, and its content, a view of the body."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    data: Buffer = b""

    @cached_property
    def name(self) -> bytes | None:
        return parse_options_header(self.headers.get(b"content-disposition"))[1].get(b"name")

    @cached_property
    def media_type(self) -> str:
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")


def _parts(body: bytes, *, boundary: bytes) -> list[_Part]:
    """The parts of a form. Given whole, the parser shows each span of it once, so that nothing is copied.

    Raises:
        Problem: 400 for what is no form.
    """
    parts: list[_Part] = []
    names: list[bytes] = []
    ends: list[bool] = []

    def on_header_value(data: bytes, start: int, end: int) -> None:
        parts[-1].headers[names[-1]] = data[start:end].strip()

    def on_data(data: bytes, start: int, end: int) -> None:
        parts[-1].data = memoryview(data)[start:end]

    try:
        if not boundary:
            raise FormParserError("its type names no boundary")
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": lambda: parts.append(_Part()),
                "on_header_field": lambda data, start, end: names.append(data[start:end].lower()),
                "on_header_value": on_header_value,
                "on_part_data": on_data,
                "on_end": lambda: ends.append(True),
            },
        )
        parser.write(body)
        if not ends:
            raise FormParserError("it ends before its closing boundary")
        for part in parts:
            if part.name is None:
                raise FormParserError("a part has no name")
            if part.headers.get(b"content-transfer-encoding", b"binary").lower() not in _AS_IT_IS:
                raise FormParserError("a part is encoded; send it as it is")
    except FormParserError as error:
        raise Problem("body-malformed", f"not a multipart form: {error}") from error
    return parts
