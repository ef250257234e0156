//! Writes the seeds of all fuzz targets into the folder given as the argument, one folder per target.
//!
//! Seeds are bytes that honest peers send. Inputs that fuzzing finds are minimised and kept beside them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Int32Array, RecordBatch, RecordBatchOptions, StringArray,
    new_null_array,
};
use headgate_fuzz::{client_session, page_schemas, server_session};
use headgate_protocol::{
    Alignment, BufferHeader, ChannelId, ChannelStateBuilder, CheckpointId, CheckpointOptions,
    DataType, ErrorFrame, Frame, FrameMask, Generation, KeptBlock, KeptIndex, KeptTable,
    LentBuffer, PartitionId, PartitionRequest, Sequence,
};
use headgate_record::event::{Barrier, StopMode};
use headgate_record::{Codec, Compressor, Event, Source, encode_rows};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::args().nth(1).ok_or("name the folder to write into")?);
    write(&root, "channel_state", channel_states())?;
    write(&root, "compression", compression())?;
    write(&root, "events", events()?)?;
    write(&root, "frames", frames()?)?;
    write(&root, "handshake", handshake())?;
    write(&root, "kept", kept())?;
    write(&root, "pages", pages()?)?;
    write(&root, "records", records())?;
    write(&root, "regions", regions())?;
    Ok(())
}

fn write(root: &Path, target: &str, seeds: Vec<Vec<u8>>) -> std::io::Result<()> {
    let folder = root.join(target);
    std::fs::create_dir_all(&folder)?;
    for (number, seed) in seeds.into_iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number:02}")), seed)?;
    }
    Ok(())
}

/// Returns one to three parts of no to three buffers, of both types, plain and compressed.
fn channel_states() -> Vec<Vec<u8>> {
    let part = |number: usize| {
        let mut part = ChannelStateBuilder::default();
        for buffer in 0..number % 4 {
            let data_type = match (number + buffer) % 3 {
                0 => DataType::DataBufferWithClearEnd,
                _ => DataType::DataBuffer,
            };
            let payload = vec![number as u8; number * 5 + buffer];
            let is_compressed = (number + buffer) % 4 == 1;
            part.push(data_type, is_compressed, payload.len(), std::iter::once(&payload[..]));
        }
        part.finish()
    };
    (0..12).map(|seed| (0..=seed % 3).flat_map(|next| part(seed + next)).collect()).collect()
}

fn compression() -> Vec<Vec<u8>> {
    let numbers = |count: u32| (0..count).flat_map(|n| (n / 9).to_le_bytes()).collect::<Vec<_>>();
    let texts =
        ["a", "Freiburg, Freising, Freudenstadt, ", "headgate\n"].map(|text| text.repeat(60));
    let plain = [20, 90, 400].map(numbers).into_iter().chain(texts.map(String::into_bytes));
    let plain: Vec<_> = plain.collect();
    let form = |codec| {
        move |plain: &Vec<u8>| {
            let mut form = plain.clone();
            let len = Compressor::new(codec).compress(&mut form)?;
            form.truncate(len);
            Some(form)
        }
    };
    let lz4 = plain.iter().filter_map(form(Codec::Lz4));
    lz4.chain(plain.iter().filter_map(form(Codec::Zstd))).collect()
}

fn kept() -> Vec<Vec<u8>> {
    let block = |number: u32| KeptBlock {
        data_type: DataType::DataBufferWithClearEnd,
        offset: u64::from(number) << 18,
        len: 1 << 18,
        plain_len: number.is_multiple_of(3).then_some(1 << 19),
        crc: number.wrapping_mul(0x9E37_79B9),
    };
    let end = KeptBlock { data_type: DataType::EndOfPartition, offset: 7, len: 28, ..block(1) };
    let indexes = (0..12).map(|count| {
        let mut index = KeptIndex((0..count).map(block).chain([end]).collect()).encode();
        // Pages may follow the index.
        index.extend_from_slice(&vec![7; count as usize % 4 * 10]);
        index
    });
    let head = |count: u32| {
        let lengths = (0..count).map(|number| (number * 3, u64::from(number) << 10));
        KeptTable::new(count.is_multiple_of(2), lengths).encode()
    };
    indexes.chain((0..4).map(head)).collect()
}

fn events() -> Result<Vec<Vec<u8>>, headgate_record::EventError> {
    let barrier = |alignment, snapshot: &'static str| {
        let options = CheckpointOptions { alignment, snapshot: snapshot.into() };
        Event::CheckpointBarrier(Barrier { id: CheckpointId(1), timestamp: 2, options })
    };
    let mut events = vec![
        Event::CancelCheckpointMarker { checkpoint_id: 5 },
        barrier(Alignment::Timeoutable { timeout: 30_000 }, ""),
        barrier(Alignment::Unaligned, ""),
        barrier(Alignment::AtLeastOnce, "file:/x"),
        Event::Custom { name: "name".to_owned(), body: "body".into() },
        Event::EndOfChannelState,
        Event::EndOfData(StopMode::NoDrain),
        Event::EndOfPartition,
        Event::EndOfSegment,
        Event::EndOfSuperstep,
        Event::RecoveryMetadata { final_buffer_index: 9 },
        Event::SubtaskConnectionDescriptor { input_subtask: 1, output_subtask: 2 },
    ];
    let announced = Box::new(events[1].clone());
    events.push(Event::EventAnnouncement { sequence_number: 3, announced });
    events.iter().map(|event| event.encode().map(Vec::from)).collect()
}

fn frames() -> Result<Vec<Vec<u8>>, std::num::TryFromIntError> {
    let (channel, generation) = (ChannelId(7), Generation(1));
    let credit = 3_u32;
    let buffer = |sequence, data_type, size| {
        let sequence = Sequence(sequence);
        Frame::Buffer(BufferHeader {
            channel,
            generation,
            sequence,
            backlog: 2,
            data_type,
            compressed: false,
            size,
            crc: 9,
        })
    };
    let consumer = [
        buffer(0, DataType::DataBuffer, 5),
        Frame::Error(ErrorFrame::new(Some(channel), 6, "no such partition")),
        Frame::Lease,
        Frame::Region { region: 0, size: 4096 },
        Frame::LentBuffer(LentBuffer {
            channel,
            generation,
            sequence: Sequence(1),
            backlog: 0,
            data_type: DataType::DataBufferWithClearEnd,
            size: 200,
            loan: 0,
            region: 0,
            offset: 1024,
        }),
        buffer(2, DataType::EndOfPartition, 28),
    ];
    let producer = [
        Frame::PartitionRequest(PartitionRequest {
            partition: PartitionId([8; 16]),
            subpartition: 0,
            channel,
            generation,
            initial_credit: credit,
            schema_hash: [4; 32],
        }),
        Frame::AddCredit { credit: credit.try_into()?, channel },
        Frame::Return { loan: 0 },
        Frame::CancelPartitionRequest { channel },
        Frame::CloseRequest,
    ];
    let mut seeds = Vec::new();
    for (flags, frames) in [(2, &consumer[..]), (3, &producer[..])] {
        let mut seed = vec![flags, 2, 1, 40];
        for frame in frames {
            frame.encode(FrameMask::new([1, 2, 3, 4]), &mut seed);
            if let Frame::Buffer(header) = frame {
                seed.resize(seed.len() + header.size as usize, 0xAB);
            }
        }
        seeds.push(seed);
    }
    Ok(seeds)
}

fn handshake() -> Vec<Vec<u8>> {
    let side = |flags, session: Vec<u8>| [vec![flags, 2, 3, 80], session].concat();
    let plane = |flags, is_control| {
        [side(flags, client_session(is_control)), side(flags + 1, server_session(is_control))]
    };
    [plane(0, false), plane(2, true)].concat()
}

fn pages() -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let columns: [(&str, ArrayRef); 3] = [
        ("c0", Arc::new(Int32Array::from(vec![Some(7), None, Some(-2)]))),
        ("c1", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
        ("c2", Arc::new(StringArray::from(vec!["é", "", "abc"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    let first = &page_schemas()[0];
    let page = encode_rows(first, &Source::try_new(first, &batch)?, &[0, 1, 2])?;
    let mut seeds = vec![[vec![0, 1], page].concat()];
    for (number, schema) in (0..).zip(page_schemas()) {
        for rows in [0, 3] {
            let columns = schema.schema().fields().iter();
            let columns: Vec<ArrayRef> =
                columns.map(|field| column(field.data_type(), rows)).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let fields = schema
                .schema()
                .fields()
                .iter()
                .map(|field| field.as_ref().clone().with_nullable(true));
            let nullable = Arc::new(arrow_schema::Schema::new(fields.collect::<Vec<_>>()));
            let batch = RecordBatch::try_new_with_options(nullable, columns, &options)?;
            let source = Source::try_new(schema, &batch);
            // A column without nulls gets only the page without rows.
            let Ok(source) = source else { continue };
            let numbers: Vec<u32> = (0..u32::try_from(rows)?).collect();
            let Ok(page) = encode_rows(schema, &source, &numbers) else { continue };
            seeds.push([vec![number, 1], page].concat());
        }
    }
    Ok(seeds)
}

fn column(data_type: &arrow_schema::DataType, rows: usize) -> ArrayRef {
    new_null_array(data_type, rows)
}

fn records() -> Vec<Vec<u8>> {
    let record = |length: u8| {
        let prefix = u32::from(length).to_be_bytes();
        [prefix.as_slice(), &vec![length; usize::from(length)]].concat()
    };
    let stream: Vec<u8> = [0, 3, 200, 1, 90].into_iter().flat_map(record).collect();
    let heads = [[255, 255, 255, 1, 64], [255, 10, 2, 1, 1], [64, 0, 1, 2, 7], [2, 1, 0, 1, 30]];
    heads.iter().map(|head| [head.as_slice(), &stream].concat()).collect()
}

/// Steps of 16 bytes: open a region, borrow in it, give back; each seed with another size and seals.
fn regions() -> Vec<Vec<u8>> {
    let step = |kind: u8, choice: u8, size: u16, number: u16, high: u8, len: u16| {
        let ([s0, s1], [a0, a1], [l0, l1]) =
            (size.to_le_bytes(), number.to_le_bytes(), len.to_le_bytes());
        [kind, choice, s0, s1, a0, a1, 0, high, l0, l1, 0, 0, 0, 0, 0, 0]
    };
    let sizes = [0, 1, 4095, 4096, 4097, 12_288];
    let honest = sizes.map(|size| {
        let open = step(0, 0, size, 0, 0, 0);
        let whole = step(1, 0, 0, 0, 0, size.min(4096));
        let last = step(1, 0, 0, size.saturating_sub(1), 0, 1);
        let beyond = step(2, 0, 0, size, 0, 1);
        let far = step(2, 0, 0, 3, 255, 9);
        let close = step(4, 0, 0, 0, 0, 0);
        [open, whole, last, beyond, far, close, step(3, 1, 0, 0, 0, 0)].concat()
    });
    // A seal is missing, a size is wrong, the descriptor is a pipe's, or the region is not mapped.
    let lies =
        [(1, 0), (2, 0), (4, 0), (8, 0), (0, 1), (0x30, 0), (0x40, 0)].map(|(choice, high)| {
            [step(0, choice, 4096, 4097, high, 0), step(1, 0, 0, 7, 0, 100)].concat()
        });
    honest.into_iter().chain(lies).collect()
}
