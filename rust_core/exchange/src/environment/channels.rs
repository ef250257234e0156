//! Channels to subpartitions of this process and of others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use headgate_protocol::{ChannelId, Generation, PartitionRequest, ReceiveChannel};

use crate::address::Address;
use crate::environment::ShuffleEnvironment;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::gate::{Channel, InputGate, LocalChannel, Place, RemoteChannel};
use crate::lock::lock;
use crate::net::Command;

impl ShuffleEnvironment {
    /// Adds a channel that reads the subpartition at `address`; a reader waiting at the gate sees
    /// its data. `schema_hash` of zeros expects none in particular. Returns its index in the gate.
    ///
    /// # Errors
    /// An address that does not resolve, a pool without room for another channel, a local
    /// partition that does not exist.
    pub fn add_channel(
        &self,
        gate: &InputGate,
        address: &Address,
        schema_hash: [u8; 32],
        interrupt: Interrupt<'_>,
    ) -> Result<usize> {
        let index = self.place(gate, Place::New, address, schema_hash, interrupt)?;
        Ok(index.expect("only a channel that exists already is left as it is"))
    }

    /// Makes an unknown channel one that reads the subpartition at `address`. False, and nothing
    /// happens, where the channel is known already or the gate is closed.
    ///
    /// # Errors
    /// As of [`add_channel`](Self::add_channel); the channel stays unknown then. No such channel.
    pub fn update_channel(
        &self,
        gate: &InputGate,
        channel: usize,
        address: &Address,
        schema_hash: [u8; 32],
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        if !gate.is_unknown(channel)? {
            return Ok(false);
        }
        let place = Place::Unknown(channel);
        Ok(self.place(gate, place, address, schema_hash, interrupt)?.is_some())
    }

    fn place(
        &self,
        gate: &InputGate,
        place: Place,
        address: &Address,
        schema_hash: [u8; 32],
        interrupt: Interrupt<'_>,
    ) -> Result<Option<usize>> {
        self.check()?;
        if address.process == self.process {
            self.add_local(gate, place, address, schema_hash)
        } else {
            self.add_remote(gate, place, address, schema_hash, interrupt)
        }
    }

    fn add_local(
        &self,
        gate: &InputGate,
        place: Place,
        address: &Address,
        schema_hash: [u8; 32],
    ) -> Result<Option<usize>> {
        let index = address.subpartition as usize;
        let not_found = || ExchangeError::PartitionNotFound {
            peer: "this process".to_owned(),
            detail: format!("subpartition {index} of partition {} is not here", address.partition),
        };
        let partition = self.partitions.find(address.partition).ok_or_else(not_found)?;
        if index >= partition.num_subpartitions() {
            return Err(not_found());
        }
        let written = partition.schema_hash();
        if schema_hash != [0; 32] && written.is_some_and(|written| written != schema_hash) {
            return Err(ExchangeError::SchemaRefused {
                peer: "this process".to_owned(),
                detail: "the consumer expects another schema than the producer writes".to_owned(),
            });
        }
        let make = |_| Ok(Channel::Local(LocalChannel::new(partition, index)));
        let Some((at, channel)) = gate.place_channel(place, make)? else {
            return Ok(None);
        };
        let Channel::Local(local) = &*channel else { unreachable!("made local above") };
        local.attach(gate.queue(), at).inspect_err(|_| gate.take_back(place, at))?;
        Ok(Some(at))
    }

    fn add_remote(
        &self,
        gate: &InputGate,
        place: Place,
        address: &Address,
        schema_hash: [u8; 32],
        interrupt: Interrupt<'_>,
    ) -> Result<Option<usize>> {
        let peer = address.resolve()?;
        let mut network = lock(&self.network);
        let mailbox = match &mut *network {
            Some(network) => Arc::clone(&network.mailbox),
            None => Arc::clone(&network.insert(self.start_network(None)?).mailbox),
        };
        drop(network);
        let id = ChannelId(self.next_channel.fetch_add(1, Ordering::Relaxed));
        let name = format!("channel {peer}/{}/{}", address.partition, address.subpartition);
        let pool = gate.pool();
        let exclusive = pool.admit(interrupt)?;
        let credit = u32::try_from(exclusive.len()).expect("a handful");
        let generation = Generation(self.config.epoch);
        let receive = ReceiveChannel::new(id, generation, credit);
        let channel = gate.place_channel(place, |index| {
            let sink = Arc::clone(&mailbox);
            let queue = gate.queue();
            let channel = RemoteChannel::new(receive, index, name, exclusive, queue, pool, sink);
            Ok(Channel::Remote(channel))
        });
        let dismiss = || pool.dismiss(credit as usize);
        let Some((at, channel)) = channel.inspect_err(|_| dismiss())? else {
            dismiss();
            return Ok(None);
        };
        let Channel::Remote(channel) = &*channel else { unreachable!("made remote above") };
        let request = PartitionRequest {
            partition: address.partition,
            subpartition: address.subpartition,
            channel: id,
            generation,
            initial_credit: channel.initial_credit(),
            schema_hash,
        };
        let process = address.process;
        mailbox.post(Command::Open { peer, process, channel: Arc::clone(channel), request });
        Ok(Some(at))
    }
}
