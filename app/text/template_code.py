"""Patterns of template code, such as `{{ name }}`, and tests of whether such code begins or ends a branch.

The code may contain quotes, `<` and `>`. Each pattern stops at the next beginning of its kind, so a text with many
beginnings takes linear time.
"""

from __future__ import annotations

import re

# ERB, EJS and JSP: `<%= name %>`.
_ERB = r"<%(?>(?:[^<%]++|<(?!%)|%(?!>))*)%>"
# Another processing instruction ends with `>`, such as `<?xml:namespace prefix = o />` in mails of Outlook.
_PHP = r"<\?(?:(?i:php)\s|=)(?>(?:[^<?]++|<(?!\?)|\?(?!>))*)\?>"
# FreeMarker: `<#if x>`, `</#if>`, `<@name/>` and `<#-- comment -->`.
_FREEMARKER = r"<#--(?>(?:[^<\-]++|<(?!#--)|-(?!->))*)-->|</?[#@][A-Za-z][^<>]*+>"
# Jinja, Liquid and Handlebars: `{{ name }}` and `{% if x %}`. Outside of its quotes, no tag begins in such code.
_IN_BRACES = r"<(?![A-Za-z/!?])|\"[^\"{}]*+\"|'[^'{}]*+'"
_BRACES = (
    rf"\{{\{{(?>(?:[^{{}}<\"']++|{_IN_BRACES})*)\}}\}}"
    rf"|\{{%(?>(?:[^{{}}<\"'%]++|%(?!\}})|{_IN_BRACES})*)%\}}"
)
# Code in angle brackets.
ANGLE_CODE = f"{_ERB}|{_PHP}|{_FREEMARKER}"
TEMPLATE_CODE = f"{ANGLE_CODE}|{_BRACES}"

_ELSE = re.compile(r"(?:\{%[-+]?|\{\{~?|<%-?|<#|\*\|)\s*+(?:else|elif|elsif|elseif)(?!\w)", re.IGNORECASE)
_CONTROL = re.compile(r"\{%|\{\{~?[#/^]|<%(?![=\-#])|</?#|\*\|(?:IF|END)(?![A-Z])")


def is_else(code: str) -> bool:
    """Whether template code begins another branch: `{% else %}`, `{{else}}`, `<% elsif x %>`, `*|ELSE:|*`."""
    return _ELSE.match(code) is not None


def is_control(code: str) -> bool:
    """Whether template code begins, divides or ends a branch or loop. Such code must keep its order."""
    return is_else(code) or _CONTROL.match(code) is not None
