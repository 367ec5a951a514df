"""Request bodies as Pydantic models, and the function that turns Pydantic's errors into the server's.

A message names the field, the limit and the size of the value. It never holds the value, which may be a text.

Some limits are settings or depend on the model. A field declares such a limit by an annotation (`AtMost`, `MaxItems`,
`MaxCharacters`) that names an attribute of the validation context.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from app.errors import InvalidRequest, PayloadTooLarge, RequestError

M = TypeVar("M", bound=BaseModel)
Json = dict[str, Any]
# Types of the errors that validators raise. The message of INVALID and TOO_LARGE is a predicate, without the field's
# name. The message of the two _BODY types is a complete sentence. `unknown_field` uses MISSPELT and UNKNOWN. An
# error's context may have `field` or `at`: the refused field or index inside the validated value.
INVALID = "invalid"
TOO_LARGE = "too_large"
INVALID_BODY = "invalid_body"
TOO_LARGE_BODY = "too_large_body"
MISSPELT = "misspelt"
UNKNOWN = "unknown"
# The text after the field's name, by Pydantic's type of error.
_PREDICATES = {
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "too_large_int": "is too large",
    "float_type": "must be a number",
    "list_type": "must be an array",
    "dict_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have {min_length} or more characters",
    "string_too_long": "has {size} characters, the limit is {max_length}",
    "too_short": "is empty: it must have at least {min_length} item",
    "too_long": "has {actual_length} items, the limit is {max_length}",
    "enum": "must be one of {expected}",
    "literal_error": "must be one of {expected}",
}
# orjson parses a whole number of this size or more as a float, which strict integers refuse.
_TOO_BIG = 2**64
# A misspelt name that an error message may repeat. Any other key may be a text.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,40}")
# The minimum difflib ratio, from 0 to 1, at which an unknown name is a misspelt known one. `taget` and `target` have
# 0.91, `beams` and `beam_size` 0.71. If lower, messages suggest fields that were not meant. If higher, they miss
# misspelt names.
_HINT_RATIO = 0.7
# As _HINT_RATIO, for `TolerantBody`, which ignores other unknown fields. If lower, it refuses extra fields of clients.
_REFUSAL_RATIO = 0.75
# The maximum number of unknown fields of one body that are compared with the known ones, each in some 100 microseconds.
_MAX_COMPARED = 16
_field_names: set[str] = set()


def _refuse(value: object) -> object:
    if value:
        raise PydanticCustomError(INVALID, "is not offered here")
    return value


# A field that is refused if it is set, because the server cannot do what it requests.
NotOffered = Annotated[Any, AfterValidator(_refuse), Field(description="refused: not offered here")]


class RequestBody(BaseModel):
    """Base of the models of bodies and of the objects in them. Types are strict: 4.0 and true are no whole numbers.

    `missing_message`: the message for a required field that is missing.
    """

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)
    missing_message: ClassVar[str] = "{field} is missing"

    @classmethod
    def __pydantic_init_subclass__(cls, **_options: Any) -> None:
        """Collect the names that the path of a field in an error may contain."""
        _field_names.update(cls.model_fields)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: object) -> object:
        """Refuse the first unknown field or null. Without this check, Pydantic would list all unknown fields."""
        if isinstance(value, dict):
            known = cls.model_fields
            for key, item in value.items():
                if key not in known:
                    raise unknown_field(key, list(known))
                if item is None:
                    hint = "" if known[key].is_required() else ": leave it out"
                    raise PydanticCustomError(INVALID, f"must not be null{hint}", {"field": key})
        return value


class TolerantBody(RequestBody):
    """Base of the bodies of other APIs. Unknown fields are ignored, unless one misspells a field that is not sent.

    After that check, a known field whose value is one of `absent_values` is dropped. So it has its default, or counts
    as missing.
    """

    model_config = ConfigDict(extra="ignore")
    absent_values: ClassVar[tuple[object, ...]] = (None,)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        missing = [name for name in cls.model_fields if name not in value]
        unknown = (key for key in value if key not in cls.model_fields)
        for key in itertools.islice(unknown, _MAX_COMPARED):
            if _nearest(key, missing, _REFUSAL_RATIO):
                raise unknown_field(key, list(cls.model_fields), hints=missing)
        absent = cls.absent_values
        return {key: item for key, item in value.items() if key in cls.model_fields and item not in absent}


@dataclass(frozen=True)
class AtMost:
    """The upper limit of a number. name: the attribute of the validation context that has the limit."""

    name: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The number's schema, then the check."""
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        """`limit_schema` puts the limit in the place of its name."""
        return {**handler(schema), "maximum": self.name}

    def _check(self, value: float, info: ValidationInfo) -> float:
        limit = getattr(info.context, self.name)
        if value > limit:
            raise PydanticCustomError(INVALID, "must be at most {limit}", {"limit": limit})
        return value


@dataclass(frozen=True)
class MaxItems:
    """The maximum number of items of an array or object, checked before the items are. limit: as in `MaxCharacters`."""

    limit: int | str
    unit: str = "items"

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The check, then the array's schema."""
        return core_schema.with_info_before_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        """`limit_schema` puts the limit in the place of its name."""
        json_schema = handler(schema)
        return {
            **json_schema,
            "maxProperties" if json_schema.get("type") == "object" else "maxItems": self.limit,
        }

    def _check(self, value: object, info: ValidationInfo) -> object:
        limit = _limit_of(self.limit, info)
        if isinstance(value, list | dict) and len(value) > limit:
            raise too_large(value, limit, self.unit)
        return value


@dataclass(frozen=True)
class MaxCharacters:
    """The maximum length of a string in code points. limit: a number, or the name of an attribute of the context."""

    limit: int | str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The string's schema, then the check."""
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        """`limit_schema` puts the limit in the place of its name."""
        return {**handler(schema), "maxLength": self.limit}

    def _check(self, value: str, info: ValidationInfo) -> str:
        limit = _limit_of(self.limit, info)
        if len(value) > limit:
            raise too_large(value, limit, "characters")
        return value


def _kind_of_texts(value: object) -> str | None:
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else None


@dataclass(frozen=True)
class OneOrMore:
    """Annotation of `str | list[str]`: a string or a non-empty array of strings.

    max_items, max_characters: numbers, or names of attributes of the validation context.
    """

    max_items: int | str
    max_characters: int | str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of a union, from which the type of the value selects a member."""
        text = Annotated[str, MaxCharacters(self.max_characters)]
        texts = Annotated[list[text], Field(min_length=1, fail_fast=True), MaxItems(self.max_items)]
        kind = Discriminator(
            _kind_of_texts,
            custom_error_type=INVALID,
            custom_error_message="must be a string or an array of strings",
        )
        return handler.generate_schema(
            Annotated[Annotated[text, Tag("a string")] | Annotated[texts, Tag("an array")], kind]
        )


def as_texts(value: str | list[str] | None) -> tuple[str, ...]:
    """The strings of a `OneOrMore` field; empty if it is not set."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def validate(kind: type[M], value: object, context: object = None) -> M:
    """The model of a parsed body. Raises InvalidRequest, PayloadTooLarge.

    kind: the model's class. context: the validation context, with the limits that the model's annotations name.
    """
    try:
        return kind.model_validate(value, context=context)
    except ValidationError as error:
        raise request_error(error, kind) from None


def request_error(error: ValidationError, kind: type[BaseModel]) -> RequestError:
    """The server's error for the first of Pydantic's errors. kind: the model that was validated."""
    first = error.errors(include_url=False)[0]
    context = first.get("ctx", {})
    error_type, loc = first["type"], first["loc"]
    # A validator of several fields, or of a whole array, names the refused field or item in the context.
    field = _path([*loc, *(context[name] for name in ("field", "at") if name in context)])
    message = first["msg"]
    if error_type == "missing":
        template = getattr(kind, "missing_message", RequestBody.missing_message)
        return InvalidRequest(template.format(field=field), field=field)
    if error_type == MISSPELT:
        field = f"{field}.{context['key']}" if field else context["key"]
        near = f"{field.removesuffix(context['key'])}{context['near']}"
        message = f"{field} is not known; did you mean {near}?"
        return InvalidRequest(message, field=field, is_misspelt=True)
    if error_type == UNKNOWN:
        message = f"a field{f' of {field}' if field else ''} is not known; {message}"
    elif error_type not in {INVALID_BODY, TOO_LARGE_BODY}:
        if error_type == "int_type" and isinstance(first["input"], float) and abs(first["input"]) >= _TOO_BIG:
            error_type = "too_large_int"
        if error_type in _PREDICATES:
            size = len(first["input"]) if error_type == "string_too_long" else None
            message = _PREDICATES[error_type].format(**_plain(context), size=size)
        elif error_type not in {INVALID, TOO_LARGE}:
            message = "is not valid"
        message = f"{field or 'the body'} {message}"
    error_class = PayloadTooLarge if error_type in {TOO_LARGE, TOO_LARGE_BODY} else InvalidRequest
    return error_class(message, field=field or None)


def too_large(value: Sized, limit: int, unit: str) -> PydanticCustomError:
    """The error of a value that is longer than the limit."""
    return PydanticCustomError(
        TOO_LARGE,
        "has {size} {unit}, the limit is {limit}",
        {"size": len(value), "unit": unit, "limit": limit},
    )


def unknown_field(
    key: str, known: Sequence[str], *, hints: Sequence[str] | None = None
) -> PydanticCustomError:
    """The error of a field that is not in `known`. The error repeats `key` only if it is a plain, misspelt name.

    hints: the known fields that `key` may misspell; None: all.
    """
    near = _nearest(key, known if hints is None else hints, _HINT_RATIO)
    if near is None or not _PLAIN_NAME.fullmatch(key):
        return PydanticCustomError(UNKNOWN, "the known fields are {known}", {"known": ", ".join(known)})
    return PydanticCustomError(MISSPELT, "is not known", {"key": key, "near": near})


def check_total(groups: Mapping[str, Sequence[str]], max_characters: int) -> None:
    """Check the number of code points of all strings together. groups: the strings by field.

    Raises PydanticCustomError above the limit. The error's field is the one with the most code points.
    """
    sizes = {name: sum(map(len, group)) for name, group in groups.items()}
    total = sum(sizes.values())
    if total > max_characters:
        raise PydanticCustomError(
            TOO_LARGE_BODY,
            "{names}: {total} characters in all, the limit is {limit}",
            {
                "names": " and ".join(name for name, size in sizes.items() if size),
                "total": total,
                "limit": max_characters,
                "field": max(sizes, key=lambda name: sizes[name]),
            },
        )


def limit_schema(schema: Any, context: object) -> Any:
    """A JSON schema in which each limit's name is replaced by its value. Limits that the context lacks are removed."""
    if isinstance(schema, list):
        return [limit_schema(each, context) for each in schema]
    if not isinstance(schema, dict):
        return schema
    limited = {}
    for key, value in schema.items():
        if key in {"maximum", "maxItems", "maxLength", "maxProperties"} and isinstance(value, str):
            if (limit := getattr(context, value, None)) is not None:
                limited[key] = limit
        else:
            limited[key] = limit_schema(value, context)
    return limited


def _limit_of(limit: int | str, info: ValidationInfo) -> int:
    value: int = limit if isinstance(limit, int) else getattr(info.context, limit)
    return value


def _nearest(key: str, known: Collection[str], ratio: float) -> str | None:
    """The most similar name in `known`, regardless of case; None if none is similar enough."""
    by_lower = {field.lower(): field for field in known}
    nearest = difflib.get_close_matches(key[:100].lower(), by_lower, n=1, cutoff=ratio)
    return by_lower[nearest[0]] if nearest else None


def _path(loc: Sequence[int | str]) -> str:
    """The path of a field, such as `inputs[0].shape`. Tags of unions and keys that are no field names are left out."""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part in _field_names:
            path += f".{part}" if path else part
    return path


def _plain(context: Mapping[str, object]) -> dict[str, str]:
    """An error's context with its values as strings, for a message."""
    plain = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in context.items()}
    if "expected" in plain:
        plain["expected"] = plain["expected"].replace("'", "").replace(" or ", ", ")
    return plain
