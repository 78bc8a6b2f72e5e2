"""`docker build -t NAME -f FILE CONTEXT` and `docker push NAME` as the pages use them, without daemon or registry."""

import argparse
import sys
from pathlib import Path

from trials.cluster.kube import load_image
from trials.image.build import DOCKERFILE, build_image


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="docker")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build")
    build.add_argument("-t", dest="name", required=True)
    build.add_argument("-f", dest="file", type=Path, required=True)
    build.add_argument("context", type=Path)
    push = commands.add_parser("push")
    push.add_argument("name")
    given = parser.parse_args(arguments)
    if given.command == "build":
        assert given.file == given.context / DOCKERFILE, given.file
        build_image(given.context.resolve(), given.name)
    else:
        load_image(given.name)
    sys.stdout.write(f"{given.command} {given.name}: done\n")


if __name__ == "__main__":
    main(sys.argv[1:])
