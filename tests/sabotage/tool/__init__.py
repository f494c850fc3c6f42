# SPDX-License-Identifier: Apache-2.0
"""Removes one rule of the code at a time, to see that a test notices."""
