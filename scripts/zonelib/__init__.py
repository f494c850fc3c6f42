# SPDX-License-Identifier: Apache-2.0
"""The command "zone": one module a verb (run, doctor, conf); cli.py lists them.

Standard library only; Rich draws nicer tables where it is installed.
"""
