"""The tasks that have a control connection, of all exchanges. No sockets, no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.spark.driver.runs.members import Consumer, Member, StageKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.spark.driver.runs.formation import StageFacts


class Membership(dict[int, Member]):
    """Connection -> the task at its other end.

    A worker can name any stage and attempt, and what consumers hold decides which run has to end. So
    only those count that Spark has been seen to run.
    """

    @property
    def consumers(self) -> list[Consumer]:
        """All consumers."""
        return [member for member in self.values() if isinstance(member, Consumer)]

    @property
    def stages(self) -> set[StageKey]:
        """The stages that consumers have named, by exchange."""
        return {c.key for c in self.consumers if c.is_present}

    @property
    def unconfirmed(self) -> set[int]:
        """The stages with consumers that Spark has not been seen to run."""
        return {c.stage for c in self.consumers if c.is_present and not c.is_confirmed}

    @property
    def confirmed(self) -> list[Consumer]:
        """The consumers that Spark has been seen to run."""
        return [consumer for consumer in self.consumers if consumer.is_confirmed]

    def heard(self, connection: int, now: float) -> None:
        """Take note of a message of a member."""
        member = self.get(connection)
        if member is not None:
            member.began = member.began or now
            member.heard = now

    def confirm(self, facts: Mapping[StageKey, StageFacts]) -> None:
        """Take note of the attempts that run in these stages, which are of their exchange."""
        for consumer in self.consumers:
            known = facts.get(consumer.key)
            if known is not None and known.running is not None:
                consumer.is_confirmed |= consumer.attempt in known.running
