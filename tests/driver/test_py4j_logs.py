"""py4j's debug log shows no pickled function."""

import logging

from py4j.protocol import get_command_part

from headgate.spark.py4j_logs import keep_bytes_out

SECRET = bytes(range(200, 232))


def test_bytes_are_counted_and_all_else_stays(caplog):
    keep_bytes_out()
    keep_bytes_out()
    part = get_command_part(bytearray(b"before" + SECRET + b"after"), None)
    command = f"c\no12\nmapInArrow\n{part}sid long\ne\n"
    with caplog.at_level(logging.DEBUG, "py4j"):
        for name in ("py4j.clientserver", "py4j.java_gateway"):
            logging.getLogger(name).debug("Command to send: {0}".format(command))  # noqa: G001, UP030, UP032 - as py4j does
    assert len(caplog.messages) == 2
    for said in caplog.messages:
        assert part.strip() not in said
        assert said == "Command to send: c\no12\nmapInArrow\nj<60 characters>\nsid long\ne\n"
