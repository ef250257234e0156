"""py4j's debug log shows no pickled function and no settings of stores."""

import logging

from py4j.protocol import get_command_part

from headgate.spark.py4j_logs import keep_secrets_out

SECRET = bytes(range(200, 232))


def test_bytes_are_counted_and_all_else_stays(caplog):
    keep_secrets_out()
    keep_secrets_out()
    part = get_command_part(bytearray(b"before" + SECRET + b"after"), None)
    command = f"c\no12\nmapInArrow\n{part}sid long\ne\n"
    with caplog.at_level(logging.DEBUG, "py4j"):
        for name in ("py4j.clientserver", "py4j.java_gateway"):
            logging.getLogger(name).debug("Command to send: {0}".format(command))  # noqa: G001, UP030, UP032 - as py4j does
    assert len(caplog.messages) == 2
    for said in caplog.messages:
        assert part.strip() not in said
        assert said == "Command to send: c\no12\nmapInArrow\nj<60 characters>\nsid long\ne\n"


def test_answers_hide_bytes_and_texts_with_settings_of_stores(caplog):
    keep_secrets_out()
    log = logging.getLogger("py4j.clientserver")
    part = get_command_part(bytearray(SECRET), None).strip()
    setting = "fs.s3a.secret.key"
    with caplog.at_level(logging.DEBUG, "py4j"):
        log.debug(f"Answer received: !y{part}")  # noqa: G004 - as py4j does
        log.debug(f"Answer received: !ysspark.hadoop.{setting} -> planted")  # noqa: G004
        log.debug(f"Command to send: c\no1\nset\ns{setting}\nsplanted\ne\n")  # noqa: G004
        log.debug("Answer received: !ys/data/fs.parquet")
    first, *settings, last = caplog.messages
    assert first == f"Answer received: !yj<{len(part) - 1} characters>"
    assert len(settings) == 2
    assert all("characters, with settings>" in text for text in settings)
    assert "planted" not in caplog.text
    assert last == "Answer received: !ys/data/fs.parquet"
