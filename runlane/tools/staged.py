"""Lines of one job, picked from the staged result of a whole batch. Pure."""


class TooManyBytes(ValueError):
    """The lines of one job are more than anybody wants."""


def own_lines(body: bytes, begins: bytes, most_bytes: int) -> bytes:
    """The lines of a body that begin so, each with its newline; they are copied, the others are not.

    Raises:
        TooManyBytes: they have more than `most_bytes`.
    """
    kept: list[bytes] = []
    size = position = 0
    while position < len(body):
        end = body.find(b"\n", position) + 1 or len(body)
        if body.startswith(begins, position):
            size += end - position
            if size > most_bytes:
                raise TooManyBytes(f"more than {most_bytes} bytes of one job")
            kept.append(body[position:end])
        position = end
    return b"".join(kept)
