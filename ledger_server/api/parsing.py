"""Bodies as messages: JSON, read strictly, and the form of a publication."""

from io import BytesIO
from typing import Final, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from python_multipart import FormParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, parse_options_header

from fl_core.models import Buffer
from fl_core.wire import v1
from ledger_server.http import strict_json
from ledger_server.http.body import body_stream, media_type, read_body
from ledger_server.http.problems import Problem, invalid

FORM_SLACK: Final = strict_json.MAX_BYTES + 16 * 1024
"""Bytes that a form may have beside its model: the transaction, boundaries, headers."""
UPLOAD_SLACK: Final = 64 * 1024
"""A model a little too large is still read, so that the refusal can say what is wrong with it."""
_PART_TYPES: Final[dict[bytes | None, tuple[str, ...]]] = {
    b"transaction": ("application/json",),
    b"model": (v1.MODEL_MEDIA_TYPE, "application/octet-stream"),
}

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


async def publication_form(request: Request, *, model_bytes: int) -> tuple[v1.PublishRequest, Buffer]:
    """The two parts of a publication: its transaction, and the model.

    Args:
        request: With a body of ``multipart/form-data``.
        model_bytes: Size of this ledger's models.

    Raises:
        Problem: 400 for what is no form, 413 for its size, 415 for another type, 422 for other parts than these two.
    """
    if media_type(request) != "multipart/form-data":
        raise Problem("unsupported-media-type", "send multipart/form-data with transaction and model")
    _, options = parse_options_header(request.headers["content-type"])
    parts: dict[bytes | None, Field | File] = {}
    ends: list[bool] = []

    def on_part(part: Field | File) -> None:
        types = _PART_TYPES.get(part.field_name)
        if types is None or part.field_name in parts:
            raise Problem("parts-invalid", "send the parts transaction and model, each once, and no others")
        if (part.content_type or types[0]).partition(";")[0].strip().lower() not in types:
            raise Problem("unsupported-media-type", f"a part must be {' or '.join(types)}")
        parts[part.field_name] = part

    limit = model_bytes + FORM_SLACK
    try:
        parser = FormParser(
            "multipart/form-data",
            on_field=on_part,
            on_file=on_part,
            on_end=lambda: ends.append(True),
            boundary=options.get(b"boundary"),
            config={"MAX_MEMORY_FILE_SIZE": limit, "UPLOAD_ERROR_ON_BAD_CTE": True},
        )
        async for chunk in body_stream(request, limit=limit):
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise Problem("body-malformed", f"not a multipart form: {error}") from error
    if not ends:
        raise Problem("body-malformed", "the form ends before its closing boundary")
    if len(parts) < len(_PART_TYPES):
        raise Problem("parts-invalid", "send both parts, transaction and model")
    return parse_json(_content(parts[b"transaction"]), v1.PublishRequest), _content(parts[b"model"])


def _content(part: Field | File) -> Buffer:
    if isinstance(part, Field):
        return part.value or b""
    assert isinstance(part.file_object, BytesIO), "MAX_MEMORY_FILE_SIZE is the whole form's limit"
    return part.file_object.getbuffer()
