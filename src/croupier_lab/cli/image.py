"""`croupier lab image`: build an image from a folder or a static binary, without Docker or a registry."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from croupier_lab.cli import arguments

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from croupier_lab.image import ImageConfig


def image(
    path: Annotated[Path, typer.Argument(help="A folder (the root file system) or one static Linux binary.")],
    tag: Annotated[str, typer.Option("--tag", "-t", metavar="NAME[:TAG]", help="Name of the image in pods.")],
    entrypoint: Annotated[
        str, typer.Option(metavar="COMMAND", help="Entry point; by default the binary itself.")
    ] = "",
    name: arguments.Name = "default",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Only write the archive."),
    ] = None,
) -> None:
    """Pack a folder or a static binary into an image and load it into a lab's real node.

    Every real node already has the image croupier.lab/busybox:1.
    """
    import asyncio
    import shlex

    from croupier_lab import image as packing

    command = tuple(shlex.split(entrypoint))
    if output is not None:
        packed = packing.pack(path, output, tag=tag, running=packing.ImageConfig(command))
        typer.echo(f"Wrote {packed.tag} ({packed.digest}) to {output}.")
        return
    loaded_tag = asyncio.run(load(path, name, tag=tag, running=packing.ImageConfig(command)))
    typer.echo(f"Loaded {loaded_tag} into the real node of lab {name}.")
    if loaded_tag.endswith(":latest"):
        typer.echo(
            "Kubernetes always pulls :latest: set imagePullPolicy: Never in the pod, or use another tag."
        )


async def load(path: Path, name: str, *, tag: str, running: "ImageConfig") -> str:
    import asyncio
    import tempfile

    from croupier_lab import image as packing

    async def pack(archive: Path) -> str:
        packed = await asyncio.to_thread(packing.pack, path, archive, tag=tag, running=running)
        return packed.tag

    with tempfile.TemporaryDirectory() as folder:
        return await create_and_load(name, Path(folder, "image.tar"), pack)


async def create_and_load(name: str, archive: Path, make: "Callable[[Path], Awaitable[str]]") -> str:
    """Create the archive and load it into the lab's real node; fails first if there is no real node."""
    from croupier_lab import realnode

    lab = arguments.find_lab(name, f"start one with `croupier lab up --real-node --name {name}`")
    realnode.inside(lab)  # fails before packing if there is no real node
    tag = await make(archive)
    await realnode.load(lab, archive)
    return tag
