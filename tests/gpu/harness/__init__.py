# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of tests/gpu natively and under libzone and writes one JSON."""
