//! A consumer that lies about what it returns.

use headgate_net::simulation::Link;
use headgate_protocol::{ChannelId, ClientHandshake, Frame, Generation, PartitionRequest, Side};
use proptest::prelude::RngExt;
use proptest::test_runner::TestRng;

use crate::simulator::hostile::peer::Hostile;
use crate::simulator::hostile::scene::{
    Beside, HONEST, Scene, Tally, VICTIM, items, share_of_lies,
};
use crate::simulator::wire::address_of;
use crate::simulator::writing::Writing;

/// A producer lends to a consumer that lies about what it returns.
pub(super) fn lies_to_a_producer(rng: &mut TestRng, tally: &mut Tally) {
    let mut scene = Scene::new();
    let (partition, other) = (scene.partition(VICTIM), scene.partition(VICTIM));
    let gate = scene.gate(HONEST, &scene.address(VICTIM, &other));
    let mut beside = Beside::new(other, gate);
    let stream = scene.link.dial(address_of(VICTIM), 1, true).expect("the victim listens");
    let mut peer = Hostile::new(stream);
    let (key, config) = Hostile::config();
    let (mut client, hello) = ClientHandshake::start(key, config, rng.random());
    peer.say(&hello, None);
    peer.shake_hands(&mut scene, rng, |input: &mut &[u8]| client.handle(input));
    let request = PartitionRequest {
        partition: partition.id(),
        subpartition: 0,
        channel: ChannelId(5),
        generation: Generation(0),
        initial_credit: rng.random_range(0..20),
        schema_hash: [0; 32],
    };
    peer.say_frame(&Frame::PartitionRequest(request), None);
    let lies = share_of_lies(rng);
    let (mut writing, items) = (Writing::default(), items(1));
    let mut lied = false;
    let (mut leases, mut regions) = (Vec::new(), Vec::new());
    let (mut loans, mut returned) = (Vec::new(), Vec::new());
    for _ in 0..rng.random_range(5..60) {
        writing.produce(&partition, &items, 0, true);
        beside.turn();
        scene.settle(rng);
        while let Some(frame) = peer.next(Side::Consumer) {
            match frame {
                Frame::Lease => leases.push(peer.descriptors.remove(0)),
                Frame::Region { .. } => regions.push(peer.descriptors.remove(0)),
                Frame::LentBuffer(lent) => {
                    tally.add("a buffer was lent");
                    loans.push(lent.loan);
                }
                _ => {}
            }
        }
        if peer.gone {
            break;
        }
        if !rng.random_bool(lies) {
            if loans.is_empty() || rng.random_bool(0.3) {
                let credit = rng.random_range(1..5).try_into().expect("not 0");
                peer.say_frame(&Frame::AddCredit { credit, channel: ChannelId(5) }, None);
            } else {
                let loan = loans.swap_remove(rng.random_range(0..loans.len()));
                returned.push(loan);
                tally.add("return");
                peer.say_frame(&Frame::Return { loan }, None);
            }
            continue;
        }
        let frame = match rng.random_range(0..4) {
            2 => {
                leases.clear();
                tally.add("lease ended early");
                continue;
            }
            0 if !returned.is_empty() => {
                tally.add("second return");
                Frame::Return { loan: returned[rng.random_range(0..returned.len())] }
            }
            1 => {
                tally.add("lease from a consumer");
                Frame::Lease
            }
            _ => {
                // Small numbers are loans of others.
                let loan = if rng.random() { rng.random() } else { rng.random_range(0..30) };
                if loans.contains(&loan) {
                    continue;
                }
                tally.add("return of nothing");
                Frame::Return { loan }
            }
        };
        lied = true;
        peer.say_frame(&frame, None);
    }
    scene.settle(rng);
    peer.listen();
    assert!(peer.gone || !lied, "a lie was passed over");
    tally.add(if peer.gone { "the producer refused its consumer" } else { "the consumer left" });
    drop(peer);
    scene.settle(rng);
    let lent = |scene: &Scene| scene.processes[VICTIM].env.stats().lent.now;
    if !leases.is_empty() && !loans.is_empty() {
        assert!(lent(&scene) >= loans.len(), "the peer may still read what it was lent");
        tally.add("loans outlive their connection");
    }
    drop(leases);
    scene.settle(rng);
    partition.release_subpartition(0);
    beside.finish(&mut scene, rng);
    scene.settle(rng);
    assert_eq!(lent(&scene), 0, "a loan outlives its lease");
    drop((writing, partition, beside));
    scene.end(rng);
}
