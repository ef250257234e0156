//! Random emits of all kinds, compared with a list of what was sent where: in order, once, and
//! complete.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use common::{Env, RECORD_LIMIT, batch, keys, nothing, page_schema};
use headgate_exchange::{
    ArrowWriter, BufferTimeout, BytesWriter, ExchangeError, InputGate, Record, RecordReader,
    ResultPartition,
};
use headgate_record::key_group::{Key, operator_index};
use headgate_record::{Event, Selector, partition_ids};
use proptest::prelude::*;
use proptest::sample::Index;

/// The first column, as Flink takes keys.
const KEY: Key = Key::HashCode { column: 0, takes_null: false };

/// Buffer sizes that a reader announces.
fn buffer_size() -> impl Strategy<Value = NonZeroU32> {
    prop_oneof![Just(1), 1..600_u32, 1..5_000_u32].prop_map(|size| NonZeroU32::new(size).unwrap())
}

/// One step of a writer. The numbers are rows, if records have rows.
#[derive(Clone, Debug)]
enum Step {
    Emit(i64),
    EmitTo(i64, Index),
    BroadcastEmit(i64),
    RandomEmit(i64),
    BroadcastEvent,
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rows = || 0..40_i64;
    let step = prop_oneof![
        4 => rows().prop_map(Step::Emit),
        2 => (rows(), any::<Index>()).prop_map(|(rows, index)| Step::EmitTo(rows, index)),
        2 => rows().prop_map(Step::BroadcastEmit),
        2 => rows().prop_map(Step::RandomEmit),
        1 => Just(Step::BroadcastEvent),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 0..60)
}

/// A selector to choose.
#[derive(Clone, Debug)]
enum Rule {
    Broadcast,
    ByLoad,
    First,
    Hash,
    InTurn { start: u32, by_rows: bool },
    KeyGroup,
    Rescale { part: bool },
    Shuffle { by_rows: bool },
}

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::Broadcast),
        Just(Rule::ByLoad),
        Just(Rule::First),
        Just(Rule::Hash),
        (0..9_u32, any::<bool>()).prop_map(|(start, by_rows)| Rule::InTurn { start, by_rows }),
        Just(Rule::KeyGroup),
        any::<bool>().prop_map(|part| Rule::Rescale { part }),
        any::<bool>().prop_map(|by_rows| Rule::Shuffle { by_rows }),
    ]
}

/// The subpartitions where a number must arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    All,
    /// A subpartition that the model does not know. Equal choices go to the same one.
    Any(usize),
    One(u32),
}

/// The model: a list of increasing numbers with their targets.
struct Model {
    n: u32,
    rule: Rule,
    turn: u32,
    next: i64,
    choices: usize,
    sent: Vec<(i64, Target)>,
}

impl Model {
    /// Returns new numbers for `rows` rows, or for one record.
    fn number(&mut self, rows: i64) -> Range<i64> {
        let from = self.next;
        self.next += rows;
        from..self.next
    }

    fn send(&mut self, numbers: Range<i64>, target: Target) {
        self.sent.extend(numbers.map(|number| (number, target)));
    }

    fn any(&mut self) -> Target {
        self.choices += 1;
        Target::Any(self.choices)
    }

    fn in_turn(&mut self, group: &Range<u32>) -> Target {
        let target = Target::One(group.start + self.turn % (group.end - group.start));
        self.turn += 1;
        target
    }

    fn group(&self) -> Range<u32> {
        if matches!(self.rule, Rule::Rescale { part: true }) {
            self.n / 2..self.n
        } else {
            0..self.n
        }
    }

    fn selector(&self) -> Selector {
        match self.rule {
            Rule::Broadcast => Selector::Broadcast,
            Rule::ByLoad => Selector::LeastLoaded { next: 1 },
            Rule::First => Selector::One(0),
            Rule::Hash => Selector::Hash { columns: vec![0.into()] },
            Rule::InTurn { start, by_rows } => {
                Selector::RoundRobin { next: start, group: None, by_rows }
            }
            Rule::KeyGroup => Selector::KeyGroup { key: KEY, max_parallelism: 128 },
            Rule::Rescale { .. } => {
                Selector::RoundRobin { next: 0, group: Some(self.group()), by_rows: false }
            }
            Rule::Shuffle { by_rows } => Selector::shuffle(3, by_rows),
        }
    }

    /// Adds a record that the selector routes. `rows` is none for a record of bytes.
    fn emit(&mut self, numbers: Range<i64>, rows: Option<&RecordBatch>) {
        let mut ids = Vec::new();
        let group = self.group();
        let target = match (self.rule.clone(), rows) {
            (Rule::Broadcast, _) => Target::All,
            (Rule::First, _) => Target::One(0),
            (Rule::InTurn { by_rows: true, .. }, Some(_)) => {
                for number in numbers {
                    let target = self.in_turn(&group);
                    self.sent.push((number, target));
                }
                return;
            }
            (Rule::InTurn { .. } | Rule::Rescale { .. }, _) => self.in_turn(&group),
            (Rule::Shuffle { by_rows: true }, Some(_)) => {
                for number in numbers {
                    let target = self.any();
                    self.sent.push((number, target));
                }
                return;
            }
            (Rule::ByLoad | Rule::Shuffle { .. }, _) => self.any(),
            (Rule::Hash, rows) => {
                partition_ids(rows.unwrap(), &[0.into()], self.n, &mut ids).unwrap();
                self.sent.extend(numbers.zip(ids).map(|(number, id)| (number, Target::One(id))));
                return;
            }
            (Rule::KeyGroup, rows) => {
                KEY.groups(rows.unwrap(), 128, &mut ids).unwrap();
                let ids = ids.iter().map(|id| Target::One(operator_index(*id, self.n, 128)));
                self.sent.extend(numbers.zip(ids));
                return;
            }
        };
        self.send(numbers, target);
    }

    /// Checks that every number arrived at its target, in the order of the sends.
    fn check(&self, received: &[Vec<i64>]) {
        let mut places = BTreeMap::new();
        let mut found = BTreeMap::<i64, Vec<u32>>::new();
        for (index, numbers) in (0..).zip(received) {
            assert!(numbers.is_sorted_by(|a, b| a < b), "subpartition {index}: {numbers:?}");
            for number in numbers {
                found.entry(*number).or_default().push(index);
            }
        }
        for (number, target) in &self.sent {
            let found = found.remove(number).unwrap_or_default();
            match target {
                Target::All => assert_eq!(found, Vec::from_iter(0..self.n), "{number}"),
                Target::One(index) => assert_eq!(found, [*index], "{number}"),
                Target::Any(choice) => {
                    assert_eq!(found.len(), 1, "{number} is in {found:?}");
                    let place = places.entry(choice).or_insert(found[0]);
                    assert_eq!(found[0], *place, "a record is in two places");
                }
            }
        }
        assert!(found.is_empty(), "{found:?} were never sent");
    }
}

enum Writer {
    Bytes(BytesWriter),
    Pages(Box<ArrowWriter>),
}

impl Writer {
    fn step(&mut self, step: &Step, model: &mut Model, width: usize) -> Result<(), ExchangeError> {
        let event = |number: i64| Event::Custom { name: number.to_string(), body: Bytes::new() };
        match self {
            Self::Bytes(writer) => {
                let numbers = model.number(1);
                let mut record = numbers.start.to_be_bytes().to_vec();
                record.resize(8 + width, 7);
                let record = Bytes::from(record);
                match step {
                    Step::Emit(_) => {
                        model.emit(numbers, None);
                        writer.emit(&record, &nothing)
                    }
                    Step::EmitTo(_, index) => {
                        let index = u32::try_from(index.index(model.n as usize)).unwrap();
                        model.send(numbers, Target::One(index));
                        writer.emit_to(index, record, &nothing)
                    }
                    Step::BroadcastEmit(_) => {
                        model.send(numbers, Target::All);
                        writer.broadcast_emit(&record, &nothing)
                    }
                    Step::RandomEmit(_) => {
                        let target = model.any();
                        model.send(numbers, target);
                        writer.random_emit(&record, &nothing)
                    }
                    Step::BroadcastEvent => {
                        let event = event(numbers.start);
                        model.send(numbers, Target::All);
                        writer.broadcast_event(&event)
                    }
                    Step::Flush => writer.flush(),
                }
            }
            Self::Pages(writer) => match step {
                Step::Emit(rows) => {
                    let numbers = model.number(*rows);
                    let rows = batch(numbers.start, numbers.end, width);
                    model.emit(numbers, Some(&rows));
                    writer.emit(&rows, &nothing)
                }
                Step::EmitTo(rows, index) => {
                    let numbers = model.number(*rows);
                    let index = u32::try_from(index.index(model.n as usize)).unwrap();
                    let rows = batch(numbers.start, numbers.end, width);
                    model.send(numbers, Target::One(index));
                    writer.emit_to(&rows, &vec![index; rows.num_rows()], &nothing)
                }
                Step::BroadcastEmit(rows) => {
                    let numbers = model.number(*rows);
                    let rows = batch(numbers.start, numbers.end, width);
                    model.send(numbers, Target::All);
                    writer.broadcast_emit(&rows, &nothing)
                }
                Step::RandomEmit(rows) => {
                    let numbers = model.number(*rows);
                    let rows = batch(numbers.start, numbers.end, width);
                    let target = model.any();
                    model.send(numbers, target);
                    writer.random_emit(&rows, &nothing)
                }
                Step::BroadcastEvent => {
                    let numbers = model.number(1);
                    let event = event(numbers.start);
                    model.send(numbers, Target::All);
                    writer.broadcast_event(&event)
                }
                Step::Flush => writer.flush(),
            },
        }
    }

    fn finish(&mut self) -> Result<(), ExchangeError> {
        match self {
            Self::Bytes(writer) => writer.finish(),
            Self::Pages(writer) => writer.finish(),
        }
    }
}

fn read(
    env: &Env,
    producer: &Env,
    partition: &ResultPartition,
    index: u32,
    pages: bool,
    wishes: &[NonZeroU32],
) -> Vec<i64> {
    let gate = env.0.create_input_gate().unwrap();
    let schema = if pages { page_schema().hash() } else { [0; 32] };
    let address = producer.address(partition, index);
    env.0.add_channel(&gate, &address, schema).unwrap();
    gate.seal();
    let schema = pages.then(page_schema);
    let options = env.0.spanning_options();
    let mut reader = RecordReader::new(
        Arc::<InputGate>::clone(&gate),
        schema,
        options,
        Arc::clone(env.0.copies()),
    );
    let mut found = Vec::new();
    let mut wishes = wishes.iter().cycle();
    while let Some(record) = reader.next(&nothing).unwrap() {
        if let Some(wish) = wishes.next() {
            gate.announce_buffer_size(*wish);
        }
        match record {
            Record::Batch(batch) => found.extend(keys(&batch)),
            Record::Bytes(bytes) => {
                found.push(i64::from_be_bytes(bytes[..8].try_into().unwrap()));
            }
            Record::Event { event: Event::Custom { name, .. }, .. } => {
                found.push(name.parse().unwrap());
            }
            other => panic!("{other:?} was never sent"),
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn writers_behave_as_the_model(
        n in 1_u32..5,
        rule in rules(),
        steps in steps(),
        pages in any::<bool>(),
        local in any::<bool>(),
        width in prop_oneof![0_usize..20, 100_usize..3_000, Just(9_000)],
        spare in 0_usize..4,
        wishes in prop::collection::vec(buffer_size(), 0..4),
        timeout in prop_oneof![
            Just(BufferTimeout::Never),
            Just(BufferTimeout::EveryRecord),
            Just(BufferTimeout::After(Duration::from_millis(1))),
        ],
    ) {
        let by_column = matches!(rule, Rule::Hash | Rule::KeyGroup);
        let pages = pages || by_column;
        let turn = if let Rule::InTurn { start, .. } = rule { start } else { 0 };
        let mut model = Model { n, rule, turn, next: 0, choices: 0, sent: Vec::new() };
        let producer = Env::new(n as usize + 1 + spare, 4096);
        // Segments that a reader keeps cannot be promised to the channel of another reader.
        let other = (!local).then(|| Env::new(2 * n as usize + spare, 4096));
        let consumer = other.as_ref().unwrap_or(&producer);
        let partition = producer.partition(n as usize);
        let selector = model.selector();
        let mut writer = if pages {
            let writer =
                ArrowWriter::new(Arc::clone(&partition), page_schema(), selector, RECORD_LIMIT);
            let writer = writer.unwrap().with_buffer_timeout(timeout, &producer.0);
            Writer::Pages(Box::new(writer.unwrap()))
        } else {
            let writer = BytesWriter::new(Arc::clone(&partition), selector, RECORD_LIMIT);
            Writer::Bytes(writer.unwrap().with_buffer_timeout(timeout, &producer.0).unwrap())
        };
        let received = thread::scope(|scope| {
            let (producer, partition, wishes) = (&producer, &partition, &wishes[..]);
            let reading: Vec<_> = (0..n)
                .map(|index| scope.spawn(move || {
                    read(consumer, producer, partition, index, pages, wishes)
                }))
                .collect();
            for step in &steps {
                writer.step(step, &mut model, width).unwrap();
            }
            writer.finish().unwrap();
            let timeout = Some(Duration::from_secs(30));
            assert!(partition.wait_consumed(timeout, &nothing).unwrap());
            reading.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
        });
        model.check(&received);
        drop(writer);
    }
}
