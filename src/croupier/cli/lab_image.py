"""`croupier lab image`: an image from a folder or a static binary, without Docker or a registry."""

from pathlib import Path
from typing import Annotated

import typer


def image(
    path: Annotated[Path, typer.Argument(help="A folder (the root file system) or one static Linux binary.")],
    tag: Annotated[str, typer.Option("--tag", "-t", metavar="NAME[:TAG]", help="What pods call the image.")],
    entrypoint: Annotated[
        str, typer.Option(metavar="COMMAND", help="What it runs; a binary runs itself unless this is given.")
    ] = "",
    name: Annotated[str, typer.Option(help="The lab whose real node gets the image.")] = "default",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the archive, load nothing."),
    ] = None,
) -> None:
    """Pack a folder or a static binary into an image and load it into a lab's real node.

    Every real node already has croupier.lab/busybox:1, a shell with the usual tools.
    """
    import asyncio
    import shlex

    from croupier.lab import image as packing

    command = tuple(shlex.split(entrypoint))
    if output is not None:
        packed = packing.pack(path, output, tag=tag, entrypoint=command)
        typer.echo(f"Wrote {packed.tag} ({packed.digest}) to {output}.")
        return
    loaded_tag = asyncio.run(_load(path, name, tag=tag, entrypoint=command))
    typer.echo(f"Loaded {loaded_tag} into the real node of lab {name}.")
    if loaded_tag.endswith(":latest"):
        typer.echo(
            "Kubernetes always pulls :latest: set imagePullPolicy: Never in the pod, or use another tag."
        )


async def _load(path: Path, name: str, *, tag: str, entrypoint: tuple[str, ...]) -> str:
    import asyncio
    import tempfile

    from croupier.lab import image as packing
    from croupier.lab import places, realnode, record
    from croupier.lab.errors import LabError
    from croupier.lab.lab import Lab

    remembered = record.load(places.labs() / name)
    if remembered is None:
        raise LabError(f"There is no lab {name}: raise one with `croupier lab up --real-node --name {name}`.")
    lab = Lab(remembered)
    realnode.inside(lab)  # says so before the packing if there is no real node
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "image.tar")
        packed = await asyncio.to_thread(packing.pack, path, archive, tag=tag, entrypoint=entrypoint)
        await realnode.load(lab, packed.archive)
    return packed.tag
