"""The bodies and responses of LibreTranslate's API, whose routes are at the root.

A body is JSON or urlencoded, or the fields of an upload. An empty string or array counts as a field left out.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator
from typing_extensions import TypedDict

from app.api.http.validation import AtMost, OneOrMore, TolerantBody, as_texts, check_total
from app.api.limits import RequestLimits


def _to_number(value: object) -> object:
    """Convert a string of digits, as a form sends it, to a number.

    Only nine digits after leading zeros are read, which bounds the work. `AtMost` then refuses a number above the
    limit.
    """
    if isinstance(value, str):
        digits = value.strip().removeprefix("-")
        if digits.isascii() and digits.isdecimal():
            number = int(digits.lstrip("0")[:9] or "0")
            return -number if value.strip().startswith("-") else number
    return value


class SimpleBody(TolerantBody):
    """Base of the bodies. The routes check `api_key` before they validate a body."""

    missing_message: ClassVar[str] = "missing {field} parameter"
    absent_values: ClassVar[tuple[object, ...]] = (None, "", [])
    api_key: Annotated[Any, Field(description="the API key; required if the server has keys")] = None


class SimpleDetectBody(SimpleBody):
    """The body of POST /detect."""

    q: Annotated[
        str | list[str],
        OneOrMore("max_items", "max_item_characters"),
        Field(description="one text, or several"),
    ]

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts."""
        return as_texts(self.q)

    @model_validator(mode="after")
    def _check_total(self, info: ValidationInfo[RequestLimits]) -> Self:
        check_total({"q": self.texts}, info.context.max_request_characters)
        return self


class SimpleTranslateBody(SimpleDetectBody):
    """The body of POST /translate."""

    source: Annotated[str, Field(description="language code; auto: detected, text by text")]
    target: Annotated[str, Field(description="language code")]
    format: Annotated[
        Literal["text", "html"], Field(description="whether the texts are plain text or HTML")
    ] = "text"
    alternatives: Annotated[
        int,
        BeforeValidator(_to_number),
        AtMost("max_alternatives"),
        AfterValidator(lambda number: max(0, number)),
        Field(description="number of alternative translations of each text"),
    ] = 0


class SimpleFileBody(SimpleBody):
    """The form of POST /translate_file."""

    file: Annotated[
        Any, WithJsonSchema({"type": "string", "format": "binary"}), Field(description="the file")
    ]
    source: Annotated[str, Field(description="language code; auto: detected")]
    target: Annotated[str, Field(description="language code")]


class SimpleError(TypedDict):
    """Why a request failed."""

    error: str
    field: NotRequired[Annotated[str, Field(description="a misspelt field")]]


class SimpleDetection(TypedDict):
    """A language that a text may be in."""

    confidence: Annotated[float, Field(ge=0, le=100)]
    language: str


class SimpleTranslateAnswer(TypedDict):
    """The answer of POST /translate. If `q` is a list, each field has one entry for each text."""

    translatedText: str | list[str]
    detectedLanguage: NotRequired[
        Annotated[SimpleDetection | list[SimpleDetection], Field(description="present if `source` is auto")]
    ]
    alternatives: NotRequired[
        Annotated[
            list[str] | list[list[str]],
            Field(description="present if `alternatives` of the request is above 0; the best is first"),
        ]
    ]


class SimpleLanguage(TypedDict):
    """A language that is served, with the languages that it is translated into, and itself."""

    code: str
    name: str
    targets: list[str]


class SimpleHealth(TypedDict):
    """The answer of GET /health."""

    status: str


class SimpleLanguageName(TypedDict):
    """A language by code and name."""

    code: str
    name: str


class SimpleLanguageChoice(TypedDict):
    """The languages that a client's page preselects."""

    source: SimpleLanguageName
    target: SimpleLanguageName


class SimpleSettings(TypedDict):
    """The answer of GET /frontend/settings."""

    charLimit: Annotated[int, Field(description="code points of one text")]
    frontendTimeout: Annotated[
        int, Field(description="milliseconds without typing until a page sends a request")
    ]
    apiKeys: bool
    keyRequired: bool
    suggestions: bool
    filesTranslation: bool
    supportedFilesFormat: list[str]
    language: SimpleLanguageChoice


class SimpleFileAnswer(TypedDict):
    """The answer of POST /translate_file."""

    translatedFileUrl: Annotated[str, Field(description="address of the translated file")]
