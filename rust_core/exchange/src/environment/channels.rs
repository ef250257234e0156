//! Channels to subpartitions of this process and of others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use headgate_protocol::{
    ChannelId, Generation, PartitionId, PartitionRequest, ReceiveChannel, ReceiveLedger,
};

use crate::address::Address;
use crate::environment::ShuffleEnvironment;
use crate::error::Result;
use crate::gate::{Channel, InputGate, LocalChannel, LocalRequest, Place, RemoteChannel};
use crate::lock::lock;
use crate::manager::{Lookup, PartitionListener};
use crate::net::{Command, Mailbox};

impl ShuffleEnvironment {
    /// Adds a channel that reads the subpartition at `address`; a reader waiting at the gate sees
    /// its data. `schema_hash` of zeros expects none in particular. Returns its index in the gate.
    ///
    /// # Errors
    /// An address that does not resolve, a pool without room for another channel, a local
    /// partition that was released. One that does not exist yet is waited for, and is an error of
    /// the reader if it does not appear.
    pub fn add_channel(
        &self,
        gate: &InputGate,
        address: &Address,
        schema_hash: [u8; 32],
    ) -> Result<usize> {
        let index = self.place(gate, Place::New, address, schema_hash)?;
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
    ) -> Result<bool> {
        if !gate.is_unknown(channel)? {
            return Ok(false);
        }
        let place = Place::Unknown(channel);
        Ok(self.place(gate, place, address, schema_hash)?.is_some())
    }

    fn place(
        &self,
        gate: &InputGate,
        place: Place,
        address: &Address,
        schema_hash: [u8; 32],
    ) -> Result<Option<usize>> {
        self.check()?;
        if address.process == self.process {
            self.add_local(gate, place, address, schema_hash)
        } else {
            self.add_remote(gate, place, address, schema_hash)
        }
    }

    fn add_local(
        &self,
        gate: &InputGate,
        place: Place,
        address: &Address,
        schema_hash: [u8; 32],
    ) -> Result<Option<usize>> {
        let (id, subpartition) = (address.partition, address.subpartition as usize);
        let make = |index| {
            let local = LocalChannel::new(id, subpartition, schema_hash, gate.queue(), index);
            Ok(Channel::Local(Box::new(local)))
        };
        let Some((at, channel)) = gate.place_channel(place, make)? else {
            return Ok(None);
        };
        self.find_local(&channel, id).inspect_err(|_| gate.take_back(place, at))?;
        Ok(Some(at))
    }

    /// Attaches a channel to its partition, now or once there is one.
    fn find_local(&self, channel: &Arc<Channel>, id: PartitionId) -> Result<()> {
        let Channel::Local(local) = &**channel else { unreachable!("made local above") };
        let request = Arc::new(LocalRequest::new(channel));
        let listener: Arc<dyn PartitionListener> = Arc::<LocalRequest>::clone(&request);
        let timeout = self.config.partition_request_timeout;
        match self.partitions.find_or_wait(id, &listener) {
            Lookup::Found(partition) => local.attach(&partition, channel),
            Lookup::Gone => Err(local.not_found("was released")),
            Lookup::Waiting if timeout.is_zero() => {
                self.partitions.forget(id, &listener);
                Err(local.not_found("is not here"))
            }
            Lookup::Waiting => {
                self.mailbox()?.post(Command::AwaitPartition { timeout, id, request });
                Ok(())
            }
        }
    }

    /// The way to the I/O thread, which is started if nobody needed it so far.
    fn mailbox(&self) -> Result<Arc<Mailbox>> {
        let mut network = lock(&self.network);
        Ok(match &mut *network {
            Some(network) => Arc::clone(&network.mailbox),
            None => Arc::clone(&network.insert(self.start_network(None)?).mailbox),
        })
    }

    fn add_remote(
        &self,
        gate: &InputGate,
        place: Place,
        address: &Address,
        schema_hash: [u8; 32],
    ) -> Result<Option<usize>> {
        let peer = address.resolve()?;
        let mailbox = self.mailbox()?;
        let id = ChannelId(self.next_channel.fetch_add(1, Ordering::Relaxed));
        let name = format!("channel {peer}/{}/{}", address.partition, address.subpartition);
        let pool = gate.pool();
        let (exclusive, free) = pool.admit()?;
        let handful = |count| u32::try_from(count).expect("a handful");
        let initial_credit = handful(free.len());
        let generation = Generation(self.config.epoch);
        let ledger = ReceiveLedger::opened(handful(exclusive), initial_credit);
        let receive = ReceiveChannel::new(id, generation, ledger);
        let channel = gate.place_channel(place, |index| {
            let sink = Arc::clone(&mailbox);
            let queue = gate.queue();
            let channel = RemoteChannel::new(receive, index, name, free, queue, pool, sink);
            Ok(Channel::Remote(channel))
        });
        let dismiss = || pool.dismiss(exclusive);
        let Some((at, in_gate)) = channel.inspect_err(|_| dismiss())? else {
            dismiss();
            return Ok(None);
        };
        let Channel::Remote(channel) = &*in_gate else { unreachable!("made remote above") };
        let request = PartitionRequest {
            partition: address.partition,
            subpartition: address.subpartition,
            channel: id,
            generation,
            initial_credit,
            schema_hash,
        };
        let process = address.process;
        mailbox.post(Command::Open { peer, process, channel: Arc::clone(channel), request });
        channel.ask_for_segments();
        gate.queue().upstream.requested(&in_gate);
        Ok(Some(at))
    }
}
