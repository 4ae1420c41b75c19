"""The client's own errors: one code each, none of them the ledger's."""

import re

from fl_client.errors import ClientError
from fl_core.errors import ERRORS_BY_CODE


def tree(root: type[ClientError]) -> list[type[ClientError]]:
    return [root, *(each for child in root.__subclasses__() for each in tree(child))]


def test_every_error_has_a_code_of_its_own() -> None:
    classes = [cls for cls in tree(ClientError) if not cls.__name__.startswith("_")]
    codes = [cls.code for cls in classes]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    assert not set(codes) & set(ERRORS_BY_CODE)


def test_the_drawn_tree_names_every_error() -> None:
    import fl_client.errors

    drawing = fl_client.errors.__doc__ or ""
    for cls in tree(ClientError):
        assert cls.__name__ in drawing
