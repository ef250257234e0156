//! Channels to subpartitions of this process and of other processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use headgate_protocol::{
    ChannelId, Generation, PartitionId, PartitionRequest, ReceiveChannel, ReceiveLedger,
};

use super::network::LazyNetwork;
use crate::address::Address;
use crate::config::Config;
use crate::error::Result;
use crate::gate::{InputGate, KeptChannel, LocalChannel, LocalRequest, Place, RemoteChannel};
use crate::manager::{Lookup, PartitionListener, PartitionManager};

/// Connects the channels of gates to the subpartitions that they read.
pub(super) struct Channels {
    config: Arc<Config>,
    partitions: Arc<PartitionManager>,
    next_id: AtomicU32,
}

impl Channels {
    pub(super) fn new(config: Arc<Config>, partitions: Arc<PartitionManager>) -> Self {
        Self { config, partitions, next_id: AtomicU32::new(0) }
    }

    /// Connects a new or an unknown channel. Returns its index in the gate; none if the gate is
    /// closed or the channel is known already.
    ///
    /// # Errors
    /// An address that does not resolve, a pool without room for another channel, a local partition
    /// that was released.
    pub(super) fn place(
        &self,
        network: &LazyNetwork,
        gate: &InputGate,
        place: Place,
        address: &Address,
        schema_hash: [u8; 32],
    ) -> Result<Option<usize>> {
        if address.process == network.process() {
            self.add_local(network, gate, place, address, schema_hash)
        } else {
            self.add_remote(network, gate, place, address, schema_hash)
        }
    }

    /// Adds a channel that reads a kept subpartition. Returns its index in the gate.
    ///
    /// # Errors
    /// The bytes are no index, or the gate takes no further channels.
    pub(super) fn place_kept(
        gate: &InputGate,
        kept: &[u8],
        file: Option<PathBuf>,
    ) -> Result<usize> {
        let waits = &gate.metrics().waits;
        let make = |index| Ok(Arc::new(KeptChannel::new(kept, file, gate.queue(), index, waits)?));
        let placed = gate.place_channel(Place::New, make)?;
        let (at, channel) = placed.expect("a new channel is not known yet");
        channel.announce();
        gate.queue().upstream.requested(channel);
        Ok(at)
    }

    fn add_local(
        &self,
        network: &LazyNetwork,
        gate: &InputGate,
        place: Place,
        address: &Address,
        schema_hash: [u8; 32],
    ) -> Result<Option<usize>> {
        let (id, subpartition) = (address.partition, address.subpartition as usize);
        let make = |index| {
            let local = LocalChannel::new(id, subpartition, schema_hash, gate.queue(), index);
            Ok(Arc::new(local))
        };
        let Some((at, channel)) = gate.place_channel(place, make)? else {
            return Ok(None);
        };
        self.find_local(network, &channel, id).inspect_err(|_| gate.take_back(place, at))?;
        Ok(Some(at))
    }

    /// Attaches a channel to its partition, now or once the partition exists.
    fn find_local(
        &self,
        network: &LazyNetwork,
        local: &Arc<LocalChannel>,
        id: PartitionId,
    ) -> Result<()> {
        let request = Arc::new(LocalRequest::new(local));
        let listener: Arc<dyn PartitionListener> = Arc::<LocalRequest>::clone(&request);
        let timeout = self.config.partition_request_timeout;
        match self.partitions.find_or_wait(id, &listener) {
            Lookup::Found(partition) => local.attach(&*partition),
            Lookup::Gone => Err(local.not_found("was released")),
            Lookup::Waiting if timeout.is_zero() => {
                self.partitions.forget(id, &listener);
                Err(local.not_found("is not here"))
            }
            Lookup::Waiting => {
                let partitions = Arc::clone(&self.partitions);
                network.mailbox()?.call_after(timeout, move || {
                    partitions.forget(id, &listener);
                    request.timed_out();
                });
                Ok(())
            }
        }
    }

    fn add_remote(
        &self,
        network: &LazyNetwork,
        gate: &InputGate,
        place: Place,
        address: &Address,
        schema_hash: [u8; 32],
    ) -> Result<Option<usize>> {
        let peer = address.resolve()?;
        let mailbox = network.mailbox()?;
        let id = ChannelId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let name = format!("channel {peer}/{}/{}", address.partition, address.subpartition);
        let pool = gate.pool();
        let (exclusive, free) = pool.admit()?;
        let count_of = |count| u32::try_from(count).expect("a count of segments of one channel");
        let initial_credit = count_of(free.len());
        let generation = Generation(self.config.epoch);
        let ledger = ReceiveLedger::opened(count_of(exclusive), initial_credit);
        let receive = ReceiveChannel::new(id, generation, ledger);
        let channel = gate.place_channel(place, |index| {
            let sink = Arc::clone(&mailbox);
            let queue = gate.queue();
            Ok(RemoteChannel::new(receive, index, name, free, queue, pool, sink))
        });
        let dismiss = || pool.dismiss(exclusive);
        let Some((at, channel)) = channel.inspect_err(|_| dismiss())? else {
            dismiss();
            return Ok(None);
        };
        let request = PartitionRequest {
            partition: address.partition,
            subpartition: address.subpartition,
            channel: id,
            generation,
            initial_credit,
            schema_hash,
        };
        let process = address.process;
        mailbox.open(peer, process, Arc::<RemoteChannel>::clone(&channel), request);
        channel.ask_for_segments();
        gate.queue().upstream.requested(channel);
        Ok(Some(at))
    }
}
