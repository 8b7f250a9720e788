"""Write a finished run's model in a format that other programs read: ONNX, for the built-in models.

The graph takes encoded features (float32, rows × features, or rows × the shape of an image) and gives each row's
class number and the probability of every class; or, for a label that is a number, that number. The names of classes
and features, and how columns become features, are in the file's metadata. Needs an extra:

  pip install 'choral[onnx]'
"""

import argparse
import json
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """The run's folder, and where the file goes."""
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    parser.add_argument("--onnx", metavar="FILE", type=Path, help="the file to write (default RUN/model.onnx)")


def run(args: argparse.Namespace) -> int:
    """Write the file and say where it is."""
    from choral.output.onnx import export_onnx

    path = export_onnx(args.folder, args.onnx)
    print(json.dumps({"onnx": str(path)}) if args.json else path)
    return 0
