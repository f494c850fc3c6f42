# SPDX-License-Identifier: Apache-2.0
"""Command line of zone: the list of verbs, the parser and the help text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zonelib import conf, doctor, run
from zonelib.errors import ZoneError


@dataclass(frozen=True)
class Verb:
    """One verb: its name, a line of help, and the two functions that its module offers."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    main: Callable[[argparse.Namespace], int]
    usage: str | None = None


VERBS = (
    Verb("run", run.HELP, run.add_arguments, run.main, run.USAGE),
    Verb("doctor", doctor.HELP, doctor.add_arguments, doctor.main),
    Verb("conf", conf.HELP, conf.add_arguments, conf.main),
)

DESCRIPTION = """\
libzone gives an unmodified CUDA program a pooling GPU allocator. This command starts programs
with it, checks whether it can work here, and explains its settings.
"""

EXAMPLES = """\
examples:
  zone run -- ./app --size 4096               run ./app pooled; its report comes at the end
  zone run -c max_cached_mb:2048 -- ./app     the same, keeping at most 2 GiB of freed memory
  zone run -r app.%p.json -- mpirun ./app     one JSON report for each process
  zone doctor                                 will it work on this machine?
  zone conf 'roundup_power2_divisions:4'      check a configuration string and explain it

"zone VERB --help" says more. Without this command: LD_PRELOAD=/path/to/libzone.so ./app
"""


def make_parser() -> argparse.ArgumentParser:
    """The parser with one subcommand for each verb."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="zone", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=raw
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
    for verb in VERBS:
        sub = verbs.add_parser(
            verb.name,
            help=verb.help,
            usage=verb.usage,
            description=sys.modules[verb.main.__module__].__doc__,
            formatter_class=raw,
        )
        verb.add_arguments(sub)
        sub.set_defaults(main=verb.main)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = make_parser()
    if not arguments:
        parser.print_help()
        return 0
    args = parser.parse_args(arguments)
    try:
        return args.main(args)
    except ZoneError as error:
        print(f"zone: {error}", file=sys.stderr)
        return error.code
    except BrokenPipeError:
        # "zone doctor | head" closed the pipe; Python would complain once more at exit.
        sys.stderr.close()
        return 1
