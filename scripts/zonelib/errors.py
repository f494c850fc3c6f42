# SPDX-License-Identifier: Apache-2.0
"""The one exception that a verb raises for something the user can put right."""

from __future__ import annotations


class ZoneError(Exception):
    """Ends the command with one line on stderr and this exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code
