"""`codesgc report`: result files into one page, or into tables of Markdown."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from codesgc import console
from codesgc.cli_train import check_writable
from codesgc.errors import InputError
from codesgc.files import write_text
from codesgc.report import reading, tables

TITLE = "codesgc: results beside the paper's"


def run_report(args: argparse.Namespace) -> int:
    """Write the page, or print or fill in the tables; files that cannot be used are named and left out."""
    if args.update is not None and not args.markdown:
        raise InputError(
            "--update was given without --markdown: expected both, as in: codesgc report --markdown --update F"
        )
    target = args.update if args.markdown else args.output
    if target is not None:
        check_writable(target, "--update" if args.markdown else "--output")
    document = None if args.update is None else read_document(args.update)
    material = reading.read(args.results or ["results"])
    if target is not None and os.path.realpath(target) in material.files:
        raise InputError(f"{target} is one of the results to be shown: expected another file to write to")
    for source, reason in material.skipped:
        console.show(f"codesgc: {source} is left out: {reason}", sys.stderr)
    if material.empty and material.skipped:
        raise InputError(
            "there is nothing to show: expected results, studies or recordings; see above what was left out"
        )
    if not args.markdown:
        from codesgc.report.page import page

        command = shlex.join(["codesgc", "report", *(args.results or ["results"]), "-o", args.output])
        write_text(args.output, page(material, args.title or TITLE, command))
        console.show(args.output)
        return 0
    text = tables.markdown(material.cells.values())
    if document is None:
        console.show(text.rstrip())
        return 0
    filled = tables.updated(document, text)
    if filled is None:
        raise InputError(
            f"--update {args.update}: expected the lines {tables.BEGIN} and {tables.END} in it; "
            "add them where the tables belong"
        )
    write_text(args.update, filled)
    return 0


def read_document(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"--update {file}: expected a text in UTF-8; give a Markdown file") from None
    except OSError as error:
        raise InputError(f"--update {file}: it cannot be read ({os.strerror(error.errno or 0)})") from None
